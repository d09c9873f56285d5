use std::time::Duration;

use asya_shared::api::{QueueStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{at, condition, report, running};
use crate::broker::Depth;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::desired::drain::{Drain, Held};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::status::make;
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};
use crate::telemetry::events::EventReason;

/// A running actor that is being deleted and waits for its queue to be empty.
fn waits(policy: &str) -> Observed {
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
    observed.drain = Some(Drain::Works(Held {
        full: vec![(queue, depth)],
        ..Held::default()
    }));
    observed
}

/// QUE-40, QUE-41
#[test]
fn wait_is_reported_with_message_counts_and_both_ways_out() {
    let holds = "queue asya-a on transport mq holds 12 messages (10 waiting, 2 unacknowledged); the actor is ";
    let out = "Set spec.queue.deletionPolicy to Retain to let the actor go now and keep the messages, or to Delete to \
               lose them";
    for (policy, reason, note) in [
        ("DeleteIfEmpty", "QueueNotEmpty", EventReason::QueueNotEmpty),
        ("Drain", "QueueDraining", EventReason::QueueDraining),
    ] {
        let mut observed = waits(policy);
        let first = report(&observed, running(&observed));
        assert_eq!(first.status.status, Some(State::Terminating), "{policy}");
        let (status, told, text) = condition(&first.status, "Ready");
        assert_eq!((status, told), ("False", reason));
        assert!(text.starts_with(holds) && text.ends_with(out), "{text}");
        assert!(text.contains("its pods go on receiving"), "{text}");
        assert_eq!(condition(&first.status, "WorkloadReady").0, "True");
        assert_eq!(first.retry, Requeue::After(Duration::from_secs(15)));
        assert_eq!(first.notes, [(note, text.to_owned())]);
        observed.previous = first.status.clone();
        let again = report(&observed, running(&observed));
        assert_eq!((again.status, again.notes), (first.status, vec![]), "once");
    }
}

/// QUE-42, FIN-3
#[test]
fn broker_that_cannot_count_is_reported_and_retried() {
    let mut observed = waits("Drain");
    let fault = Fault {
        reason: Reason::QueueDeletionFailed,
        message: "no answer".to_owned(),
        retry: Requeue::Backoff,
    };
    observed.drain = Some(Drain::Works(Held {
        fault: Some(fault),
        ..Held::default()
    }));
    let told = report(&observed, running(&observed));
    assert_eq!(
        condition(&told.status, "TransportReady"),
        ("False", "QueueDeletionFailed", "no answer")
    );
    assert_eq!(told.retry.failure(), Requeue::Backoff.failure());
}

/// QUE-42: the webhook injects until the release, which is revoked when messages arrive.
#[test]
fn release_is_recorded_once_and_revoked_when_messages_arrive() {
    let mut observed = waits("Drain");
    let works = observed.drain.replace(Drain::Confirms(Duration::ZERO));
    let confirms = Outcome::Deleting {
        fault: None,
        deleted: Vec::new(),
        retry: Requeue::AwaitChange,
        released: false,
    };
    let since = Some(Time(at("2026-01-01T00:02:00Z")));
    let first = make(&observed, &confirms, at("2026-01-01T00:02:00.5Z")).unwrap();
    assert_eq!(first.status.queue_released_since, since);
    assert_eq!(condition(&first.status, "Ready").1, "Terminating");
    observed.previous = first.status.clone();
    let later = make(&observed, &confirms, at("2026-01-01T00:02:09Z")).unwrap();
    assert_eq!(later.status, first.status);
    observed.drain = Some(Drain::Empty);
    let goes = make(&observed, &confirms, at("2026-01-01T00:02:10Z")).unwrap();
    assert_eq!(goes.status.queue_released_since, since);
    observed.drain = works;
    let back = report(&observed, running(&observed));
    assert_eq!(back.status.queue_released_since, None);
}

/// QUE-43
#[test]
fn foreground_deletion_reports_its_effect_on_the_pods() {
    for (paused, told) in [
        (
            "false",
            "replaced once, because it was deleted with propagation policy Foreground",
        ),
        ("true", "it is paused, so nothing is made again"),
    ] {
        let metadata = json!({
            "deletionTimestamp": "2026-01-01T00:00:10Z",
            "finalizers": ["foregroundDeletion", "asya.sh/finalizer"],
            "annotations": {"asya.sh/paused": paused},
        });
        let mut observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
        observed.drain = Some(Drain::Works(Held::default()));
        let told_now = report(&observed, running(&observed)).status;
        let (_, _, text) = condition(&told_now, "Ready");
        assert!(text.contains(told), "{text}");
    }
}
