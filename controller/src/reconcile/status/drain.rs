//! Reports an actor whose deletion waits until its queue is empty (QUE-40 to QUE-43).

use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, State};
use k8s_openapi::jiff::Timestamp;

use super::common::Report;
use super::conditions::Conditions;
use crate::fault::{Reason, Requeue};
use crate::reconcile::desired::drain::UndrainedQueues;
use crate::reconcile::model::condition_types::{READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::reported::is_reported;
use crate::record::FOREGROUND_DELETION;
use crate::telemetry::events::EventReason;

/// How often messages are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);

/// Turns the report of an active actor into that of an actor that is deleted once its queue is empty.
pub(super) fn report_draining(
    report: &mut Report,
    observed: &Observed,
    undrained: &UndrainedQueues,
    now: Timestamp,
) {
    let (reason, event) = match observed.deletion.queue {
        QueueDeletionPolicy::Drain => (Reason::QueueDraining, EventReason::QueueDraining),
        _ => (Reason::QueueNotEmpty, EventReason::QueueNotEmpty),
    };
    let text = text(observed, undrained);
    let status = &mut report.status;
    let mut conditions = Conditions::of(observed, now);
    conditions.list = std::mem::take(&mut status.conditions);
    if let Some(fault) = &undrained.fault {
        conditions.set(TRANSPORT_READY, Some(false), fault.reason, &fault.message);
        report.retry = report.retry.sooner(fault.retry);
    }
    conditions.set(READY, Some(false), reason, &text);
    status.conditions = conditions.list;
    status.status = Some(State::Terminating);
    report.retry = report.retry.sooner(Requeue::After(COUNT_INTERVAL));
    if !is_reported(observed, reason) {
        report.events.push((event, text));
    }
}

fn text(observed: &Observed, undrained: &UndrainedQueues) -> String {
    let queues = undrained.describe();
    let effect = match (
        observed.actor.annotations.paused,
        observed.actor.has_finalizer(FOREGROUND_DELETION),
    ) {
        (true, true) => {
            "its pods may be gone, because it was deleted with propagation policy Foreground; it is paused, so they \
             are not recreated"
        }
        (true, false) => "the actor is paused: nothing is changed until then",
        (false, true) => {
            "its pods may be replaced once, because it was deleted with propagation policy Foreground, and keep \
             consuming"
        }
        (false, false) => "nothing is torn down, and its pods keep consuming",
    };
    let way_out = "Set spec.queue.deletionPolicy to Retain to delete the actor now and keep the messages, or to \
     Delete to delete them, too";
    match observed.deletion.queue {
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
