//! Condition `TransportReady`, from this reconcile or from the last one that asked the broker.

use super::conditions::Conditions;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::condition_types::TRANSPORT_READY;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState};

/// Returns the faults of the transport and of the spec that this reconcile found.
pub(super) fn faults<'a>(
    observed: &'a Observed,
    ensured: &'a Ensured,
) -> (Option<&'a Fault>, Option<&'a Fault>) {
    match (&observed.desired, &ensured.queue) {
        (Err(fault), _) if fault.reason.is_of_transport() => (Some(fault), None),
        (Err(fault), _) => (None, Some(fault)),
        (Ok(_), QueueState::Fault(fault)) => (Some(fault), None),
        (Ok(_), _) => (None, None),
    }
}

/// Returns why the queue cannot be used. Where the broker was not asked, as for a paused actor, the previous
/// `TransportReady` is kept, and STATUS agrees with it (STA-4, row 3).
pub(super) fn wrong<'a>(
    observed: &'a Observed,
    ensured: &Ensured,
    fault: Option<&'a Fault>,
) -> Option<&'a str> {
    if let Some(fault) = fault {
        return Some(&fault.message);
    }
    let mut known = observed.previous.conditions.iter();
    let known = known.find(|known| known.type_ == TRANSPORT_READY)?;
    let stands = keeps(ensured) && known.status == "False" && !is_of_spec(&known.reason);
    stands.then_some(&*known.message)
}

/// Writes the condition.
pub(super) fn tell(
    conditions: &mut Conditions,
    observed: &Observed,
    ensured: &Ensured,
    fault: Option<&Fault>,
) {
    let mut set = |ready, reason, text: &str| conditions.set(TRANSPORT_READY, ready, reason, text);
    match (fault, &ensured.queue, &observed.desired) {
        (Some(fault), _, _) => set(Some(false), fault.reason, &fault.message),
        (None, QueueState::Ready(_) | QueueState::Created(_), Ok(desired)) => {
            let text = format!("queue {} is ready", desired.names.queue);
            set(Some(true), Reason::QueueReady, &text);
        }
        (None, QueueState::Unmanaged, _) => {
            let text = "queue management is disabled; the transport is configured";
            set(Some(true), Reason::TransportValidated, text);
        }
        (None, _, Ok(_)) if keeps(ensured) => {
            let mut known = observed.previous.conditions.iter();
            let ended = known.any(|it| it.type_ == TRANSPORT_READY && is_of_spec(&it.reason));
            if ended {
                let text = "the queue has not been looked at yet";
                set(None, Reason::Progressing, text);
            }
        }
        (None, _, _) => {}
    }
}

/// Returns whether this reconcile learned nothing new about the queue.
fn keeps(ensured: &Ensured) -> bool {
    matches!(
        ensured.queue,
        QueueState::Untouched | QueueState::Unanswered(_)
    )
}

/// Returns whether a stored reason depends on the spec alone, so that every reconcile knows whether it still holds.
fn is_of_spec(reason: &str) -> bool {
    [Reason::InvalidTransport, Reason::QueueConflict]
        .iter()
        .any(|told| told.to_string() == reason)
}
