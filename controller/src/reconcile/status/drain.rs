//! Reports an actor whose deletion waits until its queue is empty (QUE-40 to QUE-43).

use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, State};
use k8s_openapi::jiff::Timestamp;

use super::conditions::Conditions;
use super::parts::Report;
use crate::fault::{Reason, Requeue};
use crate::reconcile::desired::drain::Held;
use crate::reconcile::model::announced::is_announced;
use crate::reconcile::model::condition_types::{READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::finalizers::{FOREGROUND, has};
use crate::telemetry::events::EventReason;

/// How often messages are counted.
const COUNTED: Duration = Duration::from_secs(15);

/// Turns the report of a working actor into that of an actor to be deleted once its queue is empty.
pub(super) fn tell(report: &mut Report, observed: &Observed, held: &Held, now: Timestamp) {
    let (reason, note) = match observed.deletion.queue {
        QueueDeletionPolicy::Drain => (Reason::QueueDraining, EventReason::QueueDraining),
        _ => (Reason::QueueNotEmpty, EventReason::QueueNotEmpty),
    };
    let text = text(observed, held);
    let status = &mut report.status;
    let mut conditions = Conditions::of(observed, now);
    conditions.list = std::mem::take(&mut status.conditions);
    if let Some(fault) = &held.fault {
        conditions.set(TRANSPORT_READY, Some(false), fault.reason, &fault.message);
        report.retry = report.retry.sooner(fault.retry);
    }
    conditions.set(READY, Some(false), reason, &text);
    status.conditions = conditions.list;
    status.status = Some(State::Terminating);
    report.retry = report.retry.sooner(Requeue::After(COUNTED));
    if !is_announced(observed, reason) {
        report.notes.push((note, text));
    }
}

fn text(observed: &Observed, held: &Held) -> String {
    let held = held.text();
    let work = match (observed.actor.annotations.paused, has(observed, FOREGROUND)) {
        (true, true) => {
            "its pods may be gone, because it was deleted with propagation policy Foreground, and it is paused, so \
             nothing is made again"
        }
        (true, false) => "the actor is paused: nothing is changed meanwhile",
        (false, true) => {
            "its pods may be replaced once, because it was deleted with propagation policy Foreground, and go on \
             receiving"
        }
        (false, false) => "nothing is taken down, its pods go on receiving",
    };
    let now = "Set spec.queue.deletionPolicy to Retain to let the actor go now and keep the messages, or to Delete to \
               lose them";
    match observed.deletion.queue {
        QueueDeletionPolicy::Drain => format!(
            "{held}; the actor is deleted when that is done (queue.deletionPolicy: Drain): {work}. {now}"
        ),
        _ => format!(
            "{held}; the actor is not deleted before its queue is empty (queue.deletionPolicy: DeleteIfEmpty): {work}. \
             Let them receive the rest, or move the messages. {now}"
        ),
    }
}
