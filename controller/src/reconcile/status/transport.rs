//! Condition `TransportReady`, from this reconcile or from the last one that queried the broker.

use super::conditions::Conditions;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::condition_types::TRANSPORT_READY;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ActiveOutcome, QueueState};

/// Returns this reconcile's faults of the transport and of the spec.
pub(super) fn faults<'a>(
    observed: &'a Observed,
    outcome: &'a ActiveOutcome,
) -> (Option<&'a Fault>, Option<&'a Fault>) {
    match (&observed.desired, &outcome.queue) {
        (Err(fault), _) if fault.reason.concerns_transport() => (Some(fault), None),
        (Err(fault), _) => (None, Some(fault)),
        (Ok(_), QueueState::Fault(fault)) => (Some(fault), None),
        (Ok(_), _) => (None, None),
    }
}

/// Returns why the queue cannot be used. If the broker was not queried, as for a paused actor, the previous
/// `TransportReady` is kept, and STATUS agrees with it (STA-4, row 3).
pub(super) fn unusable_reason<'a>(
    observed: &'a Observed,
    outcome: &ActiveOutcome,
    fault: Option<&'a Fault>,
) -> Option<&'a str> {
    if let Some(fault) = fault {
        return Some(&fault.message);
    }
    let mut known = observed.previous.conditions.iter();
    let known = known.find(|known| known.type_ == TRANSPORT_READY)?;
    let still_applies =
        is_unchanged(outcome) && known.status == "False" && !depends_on_spec(&known.reason);
    still_applies.then_some(&*known.message)
}

/// Writes the condition.
pub(super) fn set_condition(
    conditions: &mut Conditions,
    observed: &Observed,
    outcome: &ActiveOutcome,
    fault: Option<&Fault>,
) {
    let mut set = |ready, reason, text: &str| conditions.set(TRANSPORT_READY, ready, reason, text);
    match (fault, &outcome.queue, &observed.desired) {
        (Some(fault), _, _) => set(Some(false), fault.reason, &fault.message),
        (None, QueueState::Ready(_) | QueueState::Created(_), Ok(desired)) => {
            let text = format!("queue {} is ready", desired.names.queue);
            set(Some(true), Reason::QueueReady, &text);
        }
        (None, QueueState::Unmanaged, _) => {
            let text = "queue management is disabled; the transport is configured";
            set(Some(true), Reason::TransportValidated, text);
        }
        (None, _, Ok(_)) if is_unchanged(outcome) => {
            let mut known = observed.previous.conditions.iter();
            let ended = known.any(|it| it.type_ == TRANSPORT_READY && depends_on_spec(&it.reason));
            if ended {
                let text = "the queue has not been checked yet";
                set(None, Reason::Progressing, text);
            }
        }
        (None, _, _) => {}
    }
}

/// Returns whether this reconcile learned nothing new about the queue.
fn is_unchanged(outcome: &ActiveOutcome) -> bool {
    matches!(
        outcome.queue,
        QueueState::NotChecked | QueueState::Unconfirmed(_)
    )
}

/// Returns whether a stored reason depends on the spec alone, so that every reconcile knows whether it still holds.
fn depends_on_spec(reason: &str) -> bool {
    [Reason::InvalidTransport, Reason::QueueConflict]
        .iter()
        .any(|it| it.to_string() == reason)
}
