use serde_json::{Value, json};

use super::{active_actor, at, condition, report, running};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Outcome, QueueState, StandaloneOutcome};
use crate::reconcile::status::build;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};
use asya_shared::api::{AsyncActorStatus, State};

/// A paused actor with this spec, whose status was `previous`.
fn paused(extra: &Value, previous: AsyncActorStatus) -> Observed {
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let mut observed = observed(&actor(&paused, &spec(extra), &json!({})));
    observed.previous = previous;
    observed
}

/// Outcome for a paused actor that has a workload.
fn existing_workload(observed: &Observed) -> StandaloneOutcome {
    StandaloneOutcome {
        workload: Some(workload(&deployment(observed))),
        ..StandaloneOutcome::default()
    }
}

/// API-3
#[test]
fn paused_actor_is_ready_with_reason_paused() {
    let observed = paused(
        &json!({}),
        report(&active_actor(), running(&active_actor())).status,
    );
    let status = report(&observed, existing_workload(&observed)).status;
    assert_eq!(
        (condition(&status, "Ready").0, condition(&status, "Ready").1),
        ("True", "Paused")
    );
}

/// STA-8, FW-21
#[test]
fn actor_that_was_never_observed_is_not_ready() {
    let observed = paused(&json!({}), AsyncActorStatus::default());
    let outcome = Outcome::Active(StandaloneOutcome::default().into());
    let report = build(&observed, &outcome, at("2026-01-01T00:01:00Z")).unwrap();
    let (ready, reason, message) = condition(&report.status, "Ready");
    assert_eq!((ready, reason), ("False", "Paused"));
    assert!(message != "everything it needs is ready", "{message}");
}

/// API-3, STA-4 row 3, STA-8
#[test]
fn queue_fault_of_a_paused_actor_is_kept_until_the_broker_is_queried_again() {
    let mut broken = running(&active_actor());
    broken.common.queue = QueueState::Fault(Fault::until_change(Reason::QueueMissing, "gone"));
    let previous = report(&active_actor(), broken).status;
    let observed = paused(&json!({}), previous);
    let status = report(&observed, existing_workload(&observed)).status;
    assert_eq!(status.status, Some(State::TransportError));
    assert_eq!(
        condition(&status, "TransportReady"),
        ("False", "QueueMissing", "gone")
    );
    assert_eq!(condition(&status, "WorkloadReady").0, "True");
    assert_eq!(condition(&status, "Ready"), ("False", "Paused", "gone"));
    assert_eq!(status.transport_status.as_deref(), Some("NotReady"));

    // Not paused, but the broker does not respond (QUE-10).
    let mut unconfirmed = active_actor();
    unconfirmed.previous = observed.previous;
    let mut active_outcome = running(&unconfirmed);
    active_outcome.common.queue = QueueState::Deferred(Requeue::Backoff);
    let status = report(&unconfirmed, active_outcome).status;
    assert_eq!(status.status, Some(State::TransportError));
}

/// API-3, STA-4 row 3, VAL-20
#[test]
fn transport_fault_is_cleared_once_a_paused_actor_changes_its_transport() {
    let unknown = json!({"transport": "nowhere"});
    let previous = paused(&unknown, AsyncActorStatus::default());
    let previous = report(&previous, existing_workload(&previous)).status;
    assert_eq!(previous.status, Some(State::TransportError));
    assert_eq!(condition(&previous, "TransportReady").1, "InvalidTransport");
    let observed = paused(&json!({}), previous);
    let status = report(&observed, existing_workload(&observed)).status;
    assert_eq!(status.status, Some(State::Running));
    assert_eq!(condition(&status, "TransportReady").0, "Unknown");
    assert_eq!(condition(&status, "Ready").0, "False");
}

/// QUE-5, OPS-22: the queue on the former transport says nothing about the one on the new transport.
#[test]
fn queue_on_another_transport_whose_broker_is_too_busy_to_ask_is_not_ready() {
    let on = |transport: &str, fault: Option<Fault>| {
        let mut observed = active_actor();
        observed.previous = {
            let mut outcome = running(&observed);
            outcome.common.queue = fault.map_or(QueueState::Ready(None), QueueState::Fault);
            report(&observed, outcome).status
        };
        let queue = json!({"transport": transport, "name": "asya-a", "verifiedGeneration": 1});
        observed.previous.queue = serde_json::from_value(queue).unwrap();
        let mut outcome = running(&observed);
        outcome.common.queue = QueueState::Deferred(Requeue::Backoff);
        let status = report(&observed, outcome).status;
        let ready = condition(&status, "TransportReady");
        (ready.0.to_owned(), ready.1.to_owned(), status.status)
    };
    let kept =
        |status: &str, reason: &str, state| (status.to_owned(), reason.to_owned(), Some(state));
    let running = State::Running;
    assert_eq!(on("mq", None), kept("True", "QueueReady", running));
    assert_eq!(on("other", None), kept("Unknown", "Progressing", running));
    let missing = || Some(Fault::until_change(Reason::QueueMissing, "gone"));
    let error = State::TransportError;
    assert_eq!(on("mq", missing()), kept("False", "QueueMissing", error));
    assert_eq!(
        on("other", missing()),
        kept("Unknown", "Progressing", running)
    );
}
