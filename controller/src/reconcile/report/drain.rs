//! What is told of an actor whose deletion waits for its queue to be empty (QUE-40 to QUE-43).

use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, State};
use k8s_openapi::jiff::Timestamp;

use super::conditions::Conditions;
use super::{READY, Report, TRANSPORT_READY};
use crate::events::Note;
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::drain::Held;
use crate::reconcile::plan::{FOREGROUND, has};
use crate::reconcile::{Reason, Retry};

/// How often the messages are counted.
const COUNTED: Duration = Duration::from_secs(15);

/// Turns the report on an actor that works into that of one which goes when its queue is empty.
pub(super) fn tell(report: &mut Report, observed: &Observed, held: &Held, now: Timestamp) {
    let (reason, note) = match observed.deletion.queue {
        QueueDeletionPolicy::Drain => (Reason::QueueDraining, Note::QueueDraining),
        _ => (Reason::QueueNotEmpty, Note::QueueNotEmpty),
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
    report.retry = report.retry.sooner(Retry::After(COUNTED));
    let told = reason.to_string();
    let mut before = observed.previous.conditions.iter();
    if !before.any(|it| it.type_ == READY && it.reason == told) {
        report.notes.push((note, text));
    }
}

fn text(observed: &Observed, held: &Held) -> String {
    let held = held.text();
    let work = if has(observed, FOREGROUND) {
        "its pods may be gone already, because it was deleted with propagation policy Foreground"
    } else if observed.actor.annotations.paused {
        "the actor is paused: nothing is changed meanwhile"
    } else {
        "nothing is taken down, its pods go on receiving"
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
