//! Condition `TransportReady`, from this reconcile or from the last one that queried the broker.

use super::conditions::ConditionChange;
use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::condition_types::TRANSPORT_READY;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{CommonOutcome, QueueState};

/// The transport, as reported.
pub(super) struct TransportSummary<'a> {
    /// This reconcile's fault of the transport.
    pub(super) fault: Option<&'a Fault>,
    /// This reconcile's fault of the rest of the spec.
    pub(super) spec_fault: Option<&'a Fault>,
    /// Why the queue cannot be used.
    pub(super) unusable: Option<&'a str>,
    /// Condition `TransportReady`; `None` leaves it unchanged.
    pub(super) condition: Option<ConditionChange>,
}

pub(super) fn summarize_transport<'a>(
    observed: &'a Observed,
    outcome: &'a CommonOutcome,
) -> TransportSummary<'a> {
    let fault = transport_fault(observed, outcome);
    TransportSummary {
        fault,
        spec_fault: spec_fault(observed),
        unusable: unusable_reason(observed, outcome, fault),
        condition: transport_condition(observed, outcome, fault),
    }
}

fn transport_fault<'a>(observed: &'a Observed, outcome: &'a CommonOutcome) -> Option<&'a Fault> {
    match (&observed.desired, &outcome.queue) {
        (Err(fault), _) => Some(fault).filter(|fault| fault.reason.concerns_transport()),
        (Ok(_), QueueState::Fault(fault)) => Some(fault),
        (Ok(_), _) => None,
    }
}

fn spec_fault(observed: &Observed) -> Option<&Fault> {
    let fault = observed.desired.as_ref().err();
    fault.filter(|fault| !fault.reason.concerns_transport())
}

/// Returns why the queue cannot be used. If the broker was not queried, as for a paused actor, the previous
/// `TransportReady` is kept, and STATUS agrees with it (STA-4, row 3).
fn unusable_reason<'a>(
    observed: &'a Observed,
    outcome: &CommonOutcome,
    fault: Option<&'a Fault>,
) -> Option<&'a str> {
    if let Some(fault) = fault {
        return Some(&fault.message);
    }
    let mut known = observed.previous.conditions.iter();
    let known = known.find(|known| known.type_ == TRANSPORT_READY)?;
    let still_applies = is_unchanged(outcome)
        && known.status == "False"
        && !depends_on_spec(&known.reason)
        && !concerns_another_queue(observed, outcome);
    still_applies.then_some(&*known.message)
}

/// Condition `TransportReady`; `None` leaves it unchanged.
fn transport_condition(
    observed: &Observed,
    outcome: &CommonOutcome,
    fault: Option<&Fault>,
) -> Option<ConditionChange> {
    let set = |value| Some(ConditionChange::Set(TRANSPORT_READY, value));
    match (fault, &outcome.queue, &observed.desired) {
        (Some(fault), _, _) => set(fault.into()),
        (None, QueueState::Ready(_) | QueueState::Created(_), Ok(desired)) => {
            let text = format!("queue {} is ready", desired.names.queue);
            set(ConditionValue::new(true, Reason::QueueReady, text))
        }
        (None, QueueState::Unmanaged, _) => {
            let text = "queue management is disabled; the transport is configured";
            set(ConditionValue::new(true, Reason::TransportValidated, text))
        }
        (None, _, Ok(_)) if is_unchanged(outcome) => {
            let mut known = observed.previous.conditions.iter();
            let moved = concerns_another_queue(observed, outcome);
            let ended = known.any(|condition| {
                condition.type_ == TRANSPORT_READY && (moved || depends_on_spec(&condition.reason))
            });
            let text = "the queue has not been checked yet";
            let unknown = ConditionStatus::Unknown;
            set(ConditionValue::new(unknown, Reason::Progressing, text)).filter(|_| ended)
        }
        (None, _, _) => None,
    }
}

/// Whether this reconcile has not checked the queue.
fn is_unchanged(outcome: &CommonOutcome) -> bool {
    matches!(
        outcome.queue,
        QueueState::NotChecked | QueueState::Deferred(_)
    )
}

/// Returns whether the known state concerns a queue other than the one whose broker did not respond this time (QUE-5).
/// A paused actor keeps its condition all the same (API-3).
fn concerns_another_queue(observed: &Observed, outcome: &CommonOutcome) -> bool {
    let (QueueState::Deferred(_), Ok(desired)) = (&outcome.queue, &observed.desired) else {
        return false;
    };
    observed.previous.queue.is_some() && !observed.records_queue_of(desired)
}

/// Returns whether a stored reason depends on the spec alone, so that every reconcile knows whether it still holds.
fn depends_on_spec(reason: &str) -> bool {
    [Reason::InvalidTransport, Reason::QueueConflict]
        .iter()
        .any(|known| known.to_string() == reason)
}
