use std::time::Duration;

use asya_shared::api::{QueueStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{at, condition, report, running};
use crate::broker::Depth;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::drain::{DrainState, RemainingQueues};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::status::build;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};
use crate::telemetry::events::{EventReason, NewEvent};

/// A running actor that is being deleted and waits for its queue to be empty.
fn waiting_until_empty(policy: &str) -> Observed {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    let extra = json!({"queue": {"deletionPolicy": policy}});
    let mut observed = observed(&actor(&deleted, &spec(&extra), &json!({})));
    observed.workload = Child::Ours(workload(&deployment(&observed)));
    let queue = QueueStatus {
        transport: "mq".to_owned(),
        name: "asya-a".to_owned(),
        ..QueueStatus::default()
    };
    let depth = Depth {
        queued: 10,
        processing: 2,
    };
    observed.drain = Some(DrainState::Waiting(RemainingQueues {
        with_messages: vec![(queue, depth)],
        ..RemainingQueues::default()
    }));
    observed
}

/// QUE-40, QUE-41, STA-7
#[test]
fn actor_that_waits_until_its_queue_is_empty_reports_message_counts_and_how_to_delete_it_now() {
    let holds = "queue asya-a on transport mq holds 12 messages (10 waiting, 2 unacknowledged); the actor is ";
    let way_out = "Set spec.queue.deletionPolicy to Retain to delete the actor now and keep the messages, or to \
               Delete to delete them, too";
    for (policy, reason, event) in [
        ("DeleteIfEmpty", "QueueNotEmpty", EventReason::QueueNotEmpty),
        ("Drain", "QueueDraining", EventReason::QueueDraining),
    ] {
        let mut observed = waiting_until_empty(policy);
        let first = report(&observed, running(&observed));
        assert_eq!(first.status.status, Some(State::Terminating), "{policy}");
        let (status, actual, text) = condition(&first.status, "Ready");
        assert_eq!((status, actual), ("False", reason));
        assert!(text.starts_with(holds) && text.ends_with(way_out), "{text}");
        assert!(text.contains("its pods keep consuming"), "{text}");
        assert_eq!(condition(&first.status, "WorkloadReady").0, "True");
        assert_eq!(first.requeue, Requeue::After(Duration::from_secs(15)));
        assert_eq!(first.events, [NewEvent::new(event, text)]);
        observed.previous = first.status.clone();
        let outcome = Outcome::Active(running(&observed).into());
        let again = build(&observed, &outcome, at("2026-01-01T01:00:00Z")).unwrap();
        assert_eq!((again.status, again.events), (first.status, vec![]), "once");
    }
}

/// QUE-42, FIN-3
#[test]
fn broker_that_cannot_count_is_reported_and_retried() {
    let mut observed = waiting_until_empty("Drain");
    let fault = Fault {
        reason: Reason::QueueDeletionFailed,
        message: "no answer".to_owned(),
        requeue: Requeue::Backoff,
    };
    observed.drain = Some(DrainState::Waiting(RemainingQueues {
        fault: Some(fault),
        ..RemainingQueues::default()
    }));
    let report = report(&observed, running(&observed));
    assert_eq!(
        condition(&report.status, "TransportReady"),
        ("False", "QueueDeletionFailed", "no answer")
    );
    assert_eq!(report.requeue.backoff(), Requeue::Backoff.backoff());
}

/// QUE-42, SAFE-43: the webhook injects until the deletion no longer waits, which is revoked when messages arrive.
#[test]
fn release_is_recorded_once_and_revoked_when_messages_arrive() {
    let mut observed = waiting_until_empty("Drain");
    let waiting = observed
        .drain
        .replace(DrainState::Confirming(Duration::ZERO));
    let confirming = Outcome::Deleting {
        fault: None,
        deleted: Vec::new(),
        requeue: Requeue::AwaitChange,
        changed_target: false,
    };
    let since = Some(Time(at("2026-01-01T00:02:00Z")));
    let first = build(&observed, &confirming, at("2026-01-01T00:02:00.5Z")).unwrap();
    assert_eq!(first.status.queue_released_since, since);
    assert_eq!(condition(&first.status, "Ready").1, "Terminating");
    observed.previous = first.status.clone();
    let later = build(&observed, &confirming, at("2026-01-01T00:02:09Z")).unwrap();
    assert_eq!(later.status, first.status);
    let earlier_clock = build(&observed, &confirming, at("2025-12-31T00:02:00Z")).unwrap();
    let restarted = Some(Time(at("2025-12-31T00:02:00Z")));
    assert_eq!(earlier_clock.status.queue_released_since, restarted);
    observed.drain = Some(DrainState::Empty);
    let released = build(&observed, &confirming, at("2026-01-01T00:02:10Z")).unwrap();
    assert_eq!(released.status.queue_released_since, since);
    observed.drain = waiting;
    let revoked = report(&observed, running(&observed));
    assert_eq!(revoked.status.queue_released_since, None);
}

/// QUE-43
#[test]
fn foreground_deletion_reports_its_effect_on_the_pods() {
    for (paused, expected) in [
        (
            "false",
            "replaced once, because it was deleted with propagation policy Foreground",
        ),
        ("true", "it is paused, so they are not recreated"),
    ] {
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:10Z",
            "finalizers": ["foregroundDeletion", "asya.sh/finalizer"],
            "annotations": {"asya.sh/paused": paused},
        });
        let mut observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
        observed.drain = Some(DrainState::Waiting(RemainingQueues::default()));
        let status = report(&observed, running(&observed)).status;
        let (_, _, text) = condition(&status, "Ready");
        assert!(text.contains(expected), "{text}");
    }
}
