//! Plans the queue.

use crate::broker::{BrokerError, QueueCheck, Serving};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::desired::Desired;
use crate::reconcile::model::known_queues::is_same;
use crate::reconcile::model::observed::{Observed, QueueSeen, is_done_once};
use crate::reconcile::model::outcome::QueueState;
use crate::reconcile::plan::steps::QueueStep;
use crate::telemetry::events::EventReason;

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

/// Whether the desired queue was verified before.
pub fn was_verified(observed: &Observed) -> bool {
    let desired = observed.desired.as_deref();
    desired.is_ok_and(|desired| observed.is_verified(desired))
}

/// The state of a queue that is as desired: just `created`, or with what the broker reported in this reconcile. One
/// that is not where the configuration says it is cannot be used, which does not affect its deletion with the actor.
pub fn serving_state(desired: &Desired, serving: Option<Serving>, created: bool) -> QueueState {
    let url = serving.as_ref().and_then(|it| it.url.as_deref());
    let broker = desired.transport.broker();
    let misplaced = url.and_then(|url| broker.misplaced(&desired.names.queue, url));
    match (misplaced, serving) {
        (Some(message), _) => QueueState::Fault(Fault {
            reason: Reason::QueueConfigInvalid,
            message,
            retry: Requeue::SlowBackoff,
        }),
        (None, Some(serving)) if created => QueueState::Created(serving),
        (None, serving) => QueueState::Ready(serving),
    }
}

/// The state of a queue whose creation or update failed. It is not a fault that too many calls were ahead of this one.
pub fn failed_state(error: &BrokerError) -> QueueState {
    if error.comes_again().is_some() {
        QueueState::Unanswered(error.retry())
    } else {
        QueueState::Fault(error.fault())
    }
}

/// The Event of a created queue. One that was verified before had been lost.
pub fn creation_event(desired: &Desired, recreates: bool) -> (EventReason, String) {
    let (reason, verb) = if recreates {
        (EventReason::QueueRecreated, "created again")
    } else {
        (EventReason::QueueCreated, "created")
    };
    let (queue, transport) = (&desired.names.queue, &desired.transport.name);
    (
        reason,
        format!("{verb} queue {queue} on transport {transport}"),
    )
}

/// Whether existing pods already consume from the queue that is desired now.
pub fn knows_queue(observed: &Observed, desired: &Desired) -> bool {
    let before = observed.previous.queue.as_ref();
    before.is_none_or(|before| is_same(before, &desired.queue()))
}
