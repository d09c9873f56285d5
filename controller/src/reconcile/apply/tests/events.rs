//! Texts of Events.

use std::time::Duration;

use asya_shared::queue_claims::ClaimKind;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::apply;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::{Observed, QueueNameTaken};
use crate::reconcile::plan::plan;
use crate::reconcile::tests::fixtures::{
    Bodies, actor, deployment, observed, recording_context, spec, workload,
};
use crate::record::Key;

const DELETED: &str = "2026-01-01T00:00:00Z";

/// Applies the plan of an actor, and waits for an Event with this reason; returns its note.
async fn note(observed: &Observed, object: serde_json::Value, reason: &str) -> String {
    let (context, bodies) = recording_context(object);
    let plan = plan(observed, Timestamp::now());
    assert!(apply(&context, &observed.actor, plan).await.is_ok());
    let event = timeout(Duration::from_mins(1), published(&bodies, reason));
    event.await.expect("an Event is published")
}

async fn published(bodies: &Bodies, reason: &str) -> String {
    loop {
        let note = bodies.lock().iter().find_map(|body| {
            let note = body["note"].as_str().filter(|_| body["reason"] == reason);
            note.map(str::to_owned)
        });
        match note {
            Some(note) => return note,
            None => sleep(Duration::from_millis(1)).await,
        }
    }
}

/// QUE-3
#[tokio::test(start_paused = true)]
async fn stopped_workload_is_reported() {
    let status = json!({"queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 2}});
    let mut observed = observed(&actor(&json!({}), &spec(&json!({})), &status));
    let object = deployment(&observed);
    observed.workload = Child::Ours(workload(&object));
    observed.queue_name_taken = Some(QueueNameTaken {
        contested: ClaimKind::Queue,
        workload_hash: Some("another".to_owned()),
        kind: None,
    });
    observed.desired = Err(Fault::until_change(Reason::QueueConflict, "it is b's"));
    if let Some(verified) = &mut observed.queues.verified {
        verified.permission = DeletePermission::HeldBy(Key::new("ns", "b"));
    }
    let note = note(&observed, object, "WorkloadStopped").await;
    assert!(note.ends_with("gets no pods: it is b's"), "{note}");
}

/// FW-23 (d)
#[tokio::test(start_paused = true)]
async fn orphaned_children_are_reported() {
    let metadata = json!({"deletionTimestamp": DELETED});
    let orphaning = spec(&json!({"deletionPolicy": "Orphan"}));
    let manifest = actor(&metadata, &orphaning, &json!({}));
    let note = note(&observed(&manifest), manifest, "Orphaned").await;
    assert!(
        note.starts_with("the queue and every object of this actor are kept"),
        "{note}"
    );
}

/// QUE-5
#[tokio::test(start_paused = true)]
async fn queue_that_cannot_be_deleted_is_reported() {
    // The broker is called, so this test must not depend on another one that installs the provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let status = json!({"queue": {"transport": "gone", "name": "asya-a"}});
    let metadata = json!({"deletionTimestamp": DELETED});
    let manifest = actor(&metadata, &spec(&json!({})), &status);
    let note = note(&observed(&manifest), manifest, "QueueDeletionFailed").await;
    assert!(note.starts_with("queue asya-a cannot be deleted"), "{note}");
}
