//! Plans the queue.

use crate::broker::QueueCheck;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::desired::Desired;
use crate::reconcile::model::known_queues::is_same;
use crate::reconcile::model::observed::{Observed, QueueSeen, is_done_once};
use crate::reconcile::plan::steps::QueueStep;

pub fn plan_queue(observed: &Observed) -> QueueStep {
    let Ok(desired) = &observed.desired else {
        return QueueStep::Keep(None);
    };
    if is_done_once(&observed.actor, &observed.previous) && !knows_queue(observed, desired) {
        return QueueStep::Leave;
    }
    let queue = &desired.names.queue;
    let creates = desired.transport.queues().auto_create;
    match &observed.queue {
        QueueSeen::NotAsked => QueueStep::Unmanaged,
        QueueSeen::Unanswered(retry) => QueueStep::Await(*retry),
        QueueSeen::Unknown(error) => QueueStep::Refuse(error.fault()),
        QueueSeen::Checked(QueueCheck::Absent) if creates => QueueStep::Create,
        QueueSeen::Checked(QueueCheck::Absent) => QueueStep::Refuse(Fault {
            reason: Reason::QueueMissing,
            message: format!(
                "queue {queue} does not exist and autoCreate is false; create it at the broker"
            ),
            retry: Requeue::SlowBackoff,
        }),
        QueueSeen::Checked(QueueCheck::Drifted | QueueCheck::Unmarked) if creates => {
            QueueStep::Update
        }
        QueueSeen::Checked(QueueCheck::Serves(serving)) => QueueStep::Keep(Some(serving.clone())),
        QueueSeen::Verified | QueueSeen::Checked(QueueCheck::Drifted | QueueCheck::Unmarked) => {
            QueueStep::Keep(None)
        }
        QueueSeen::Checked(QueueCheck::Differs { wanted, found }) => QueueStep::Refuse(Fault {
            reason: Reason::QueueMismatch,
            message: format!(
                "queue {queue} has {found}, wanted is {wanted}; {}",
                desired.transport.broker().way_out_of_mismatch()
            ),
            retry: Requeue::SlowBackoff,
        }),
    }
}

/// Whether existing pods already consume from the queue that is desired now.
pub fn knows_queue(observed: &Observed, desired: &Desired) -> bool {
    let before = observed.previous.queue.as_ref();
    before.is_none_or(|before| is_same(before, &desired.queue()))
}
