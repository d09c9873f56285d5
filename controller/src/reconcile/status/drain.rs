//! Reports an actor whose deletion waits until its queue is empty (QUE-40 to QUE-43).

use std::time::Duration;

use asya_shared::api::QueueDeletionPolicy;

use super::conditions::ConditionChange;
use crate::condition::ConditionValue;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::condition_types::{READY, TRANSPORT_READY};
use crate::reconcile::model::drain::RemainingQueues;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::reported::is_reported;
use crate::record::FOREGROUND_DELETION;
use crate::telemetry::events::{EventReason, NewEvent};

/// How often messages are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);

/// The report of an actor whose deletion waits until its queue is empty; empty for any other actor.
#[derive(Default)]
pub(super) struct DrainReport {
    pub(super) conditions: Vec<ConditionChange>,
    pub(super) requeue: Option<Requeue>,
    pub(super) event: Option<NewEvent>,
}

pub(super) fn drain_report(observed: &Observed, remaining: &RemainingQueues) -> DrainReport {
    let (reason, event) = match observed.actor.queue_policy {
        QueueDeletionPolicy::Drain => (Reason::QueueDraining, EventReason::QueueDraining),
        _ => (Reason::QueueNotEmpty, EventReason::QueueNotEmpty),
    };
    let text = text(observed, remaining);
    let event = (!is_reported(observed, reason)).then(|| NewEvent::new(event, &*text));
    let mut conditions = Vec::new();
    let mut requeue = Requeue::After(COUNT_INTERVAL);
    if let Some(fault) = &remaining.fault {
        let condition = ConditionChange::Set(TRANSPORT_READY, fault.into());
        conditions.push(condition);
        requeue = requeue.sooner(fault.requeue);
    }
    let ready = ConditionChange::Set(READY, ConditionValue::new(false, reason, text));
    conditions.push(ready);
    DrainReport {
        conditions,
        requeue: Some(requeue),
        event,
    }
}

fn text(observed: &Observed, remaining: &RemainingQueues) -> String {
    let queues = remaining.describe();
    let effect = match (
        observed.actor.annotations.paused,
        observed.actor.has_finalizer(FOREGROUND_DELETION),
    ) {
        (true, true) => {
            "its pods may be gone, because it was deleted with propagation policy Foreground; it is paused, so they \
             are not recreated"
        }
        (true, false) => "the actor is paused: nothing is changed until it is resumed",
        (false, true) => {
            "its pods may be replaced once, because it was deleted with propagation policy Foreground, and keep \
             consuming"
        }
        (false, false) => "nothing is torn down, and its pods keep consuming",
    };
    let way_out = "Set spec.queue.deletionPolicy to Retain to delete the actor now and keep the messages, or to \
     Delete to delete them, too";
    match observed.actor.queue_policy {
        QueueDeletionPolicy::Drain => format!(
            "{queues}; the actor is deleted once they have been processed (queue.deletionPolicy: Drain): {effect}. \
             {way_out}"
        ),
        _ => format!(
            "{queues}; the actor is not deleted until its queue is empty (queue.deletionPolicy: DeleteIfEmpty): \
             {effect}. Let its pods process the remaining messages, or move them. {way_out}"
        ),
    }
}
