//! Every write names what it was based on, so that it fails where that has changed.

use asya_process::clock;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{pod, serve_deployment};
use crate::fault::{Error, Reason};
use crate::reconcile::apply::delete::delete;
use crate::reconcile::apply::finalizer::patch_finalizers;
use crate::reconcile::apply::workload::ensure_workload;
use crate::reconcile::apply::{evict, foreign_fields, scale_from_zero};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::outcome::{Outcome, RolloutOutcome, StandaloneOutcome};
use crate::reconcile::plan::deletion::plan_deletion;
use crate::reconcile::plan::finalizers::FinalizerPatch;
use crate::reconcile::plan::steps::{ScaleFromZero, WorkloadStep, WorkloadUpdate};
use crate::reconcile::plan::workload::WorkloadInputs;
use crate::reconcile::tests::fixtures::{
    actor, context_with, deployment, just_read, observed, recording_context, slot_end, spec,
    workload,
};
use crate::record::Key;
use crate::scaling::tests::fixtures::scaled_object;

/// ROLL-4 (d): a StatefulSet's next pod has the same name.
#[tokio::test]
async fn eviction_names_the_uid_of_the_pod() {
    let success = json!({"kind": "Status", "status": "Success", "code": 201});
    let (context, bodies) = recording_context(success);
    let evicted = evict::evict(&context, &Key::new("ns", "a"), &pod("web-1"), &just_read(1)).await;
    assert!(evicted.is_ok());
    let bodies = bodies.lock();
    let uid = bodies[0].pointer("/deleteOptions/preconditions/uid");
    assert_eq!(uid, Some(&json!("uid-of-pod")));
}

#[tokio::test]
async fn deletion_names_the_uid_of_the_object() {
    let (context, bodies) = recording_context(json!({"kind": "Status", "status": "Success"}));
    let key = Key::new("ns", "asya-a");
    let deleted = context.service_accounts.delete(&key, "7").await;
    assert!(deleted.is_ok());
    let bodies = bodies.lock();
    assert_eq!(bodies[0].pointer("/preconditions/uid"), Some(&json!("7")));
}

/// FW-23 (g): the watch that shows that the garbage collector has released it may be behind.
#[tokio::test]
async fn objects_of_a_deleted_actor_are_deleted_only_in_the_version_that_was_observed() {
    let deleting = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["asya.sh/finalizer"],
    });
    let mut observed = observed(&actor(&deleting, &spec(&json!({})), &json!({})));
    let mut live = deployment(&observed);
    live["metadata"]["resourceVersion"] = "5".into();
    let scaled_object = scaled_object(&json!({}));
    let version = scaled_object.metadata.resource_version.to_string();
    observed.scaling.scaled_object = Child::Ours(scaled_object);
    observed.workload = Child::Ours(workload(&live));
    for expected in [version.as_str(), "5"] {
        let (context, bodies) = recording_context(json!({"kind": "Status", "status": "Success"}));
        let plan = Box::new(plan_deletion(&observed, Timestamp::UNIX_EPOCH));
        let deleted = delete(&context, &observed.actor, plan).await;
        assert!(
            matches!(deleted, Ok(Outcome::Deleting { .. })),
            "{deleted:?}"
        );
        let bodies = bodies.lock();
        let sent = bodies[0].pointer("/preconditions/resourceVersion");
        assert_eq!(sent, Some(&json!(expected)));
        assert_eq!(bodies.len(), 1);
        observed.scaling.scaled_object = Child::NotFound;
    }
}

/// FW-23 (b)
#[tokio::test]
async fn orphaned_object_loses_only_our_owner_reference_and_only_if_none_has_changed() {
    let owner = |kind: &str, uid: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "name": "a", "uid": uid});
    let owners = json!([owner("Other", "another"), owner("AsyncActor", "actor-uid")]);
    let (context, bodies) = recording_context(json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": "asya-a", "namespace": "ns", "uid": "7", "resourceVersion": "5", "ownerReferences": owners,
        },
    }));
    let key = Key::new("ns", "asya-a");
    let orphaned = context.service_accounts.orphan(&key, "7", "actor-uid");
    assert!(orphaned.await.is_ok());
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": "7"},
        {"op": "test", "path": "/metadata/ownerReferences", "value": owners},
        {"op": "remove", "path": "/metadata/ownerReferences/1"},
    ]);
    assert_eq!(*bodies.lock(), [patch]);
}

/// FW-23 (g): seed 716 of the simulation. The garbage collector may have released the workload since.
#[tokio::test]
async fn workload_of_a_deleted_actor_is_updated_only_in_the_version_that_was_observed() {
    for (metadata, version) in [
        (json!({}), None),
        (
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            Some("5"),
        ),
    ] {
        let observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
        let mut live = deployment(&observed);
        live["metadata"]["resourceVersion"] = "5".into();
        let (context, bodies) = recording_context(live.clone());
        let inputs = WorkloadInputs {
            ownership: &observed.ownership,
            standalone: observed.standalone().unwrap(),
            applied: None,
        };
        let step = WorkloadStep::Update(WorkloadUpdate::default());
        let mut outcome = StandaloneOutcome::default();
        let existing = Some(workload(&live));
        let result = ensure_workload(&context, inputs, step, existing, &mut outcome).await;
        assert!(result.is_ok() && outcome.workload.is_some());
        let bodies = bodies.lock();
        let applied = bodies[0].pointer("/metadata/resourceVersion");
        assert_eq!(applied.and_then(|it| it.as_str()), version, "{metadata}");
    }
}

/// ROLL-4 (c)
#[tokio::test]
async fn accepted_eviction_resets_the_backoff_of_rejected_ones() {
    let (context, _) = recording_context(json!({"kind": "Status", "status": "Success"}));
    let key = Key::new("ns", "a");
    let slots = &context.rollout_slots;
    let refuse = || slots.eviction_refused(&key, "budget", clock::now());
    let first = refuse();
    assert_ne!(refuse(), first);
    assert!(
        evict::evict(&context, &key, &pod("web-1"), &just_read(1))
            .await
            .is_ok()
    );
    assert_eq!(refuse(), first);
}

/// ROLL-4
#[tokio::test]
async fn rejected_eviction_frees_the_slot_unless_the_pod_is_gone_or_changed() {
    type Responses = fn(&str) -> Option<(u16, serde_json::Value)>;
    fn rejected(reason: &str, code: u16) -> (u16, serde_json::Value) {
        let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code});
        (code, status)
    }
    fn two_budgets() -> (u16, serde_json::Value) {
        // As Kubernetes 1.36 answers.
        let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        (
            500,
            json!({"kind": "Status", "status": "Failure", "message": text, "code": 500}),
        )
    }
    let cases: [(&str, Responses, bool); 5] = [
        ("requested", |_| Some(rejected("NotFound", 404)), false),
        ("stale", |_| Some(rejected("Conflict", 409)), false),
        ("waiting", |_| Some(rejected("Forbidden", 403)), true),
        ("waiting", |_| Some(two_budgets()), true),
        ("failed", |_| Some(rejected("InternalError", 500)), true),
    ];
    for (expected, responses, frees_slot) in cases {
        let context = context_with(responses);
        let key = Key::new("ns", "a");
        context.rollout_slots.acquire(&key, slot_end());
        let outcome = match evict::evict(&context, &key, &pod("web-1"), &just_read(1)).await {
            Ok(RolloutOutcome::Waiting(fault)) if fault.reason == Reason::RolloutWaiting => {
                "waiting"
            }
            Ok(_) => "requested",
            Err(Error::Stale(_)) => "stale",
            Err(_) => "failed",
        };
        assert_eq!(outcome, expected);
        let other = Key::new("elsewhere", "other");
        let is_free = context.rollout_slots.can_acquire(&other, Timestamp::now());
        assert_eq!(is_free, frees_slot, "{expected}");
    }
}

/// SO-6
#[tokio::test]
async fn target_is_scaled_up_only_from_zero_and_only_if_it_has_not_changed() {
    for (replicas, expected) in [(0, vec![json!("5")]), (2, vec![])] {
        let scale = json!({
            "metadata": {"name": "web", "resourceVersion": "5"}, "spec": {"replicas": replicas},
        });
        let (context, bodies) = recording_context(scale);
        let step = ScaleFromZero {
            object: serve_deployment(&context),
            replicas: 1,
        };
        let scaled = scale_from_zero::scale_up(&context, "ns", &step).await;
        assert!(scaled.is_ok());
        let bodies = bodies.lock();
        let versions = bodies
            .iter()
            .map(|body| &body["metadata"]["resourceVersion"]);
        assert_eq!(versions.cloned().collect::<Vec<_>>(), expected);
    }
}

/// FIN-1: the finalizers have changed since they were read.
#[tokio::test]
async fn failed_test_in_a_patch_of_finalizers_plans_again() {
    let context = context_with(|_| {
        let failed =
            json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422});
        Some((422, failed))
    });
    let patched = patch_finalizers(&context, patch()).await;
    assert!(matches!(patched, Err(Error::Stale(_))), "{patched:?}");
}

/// FIN-1: only an invalid patch can be planned better, and only a missing actor has no finalizers.
#[tokio::test]
async fn forbidden_patch_of_finalizers_fails() {
    let context = context_with(|_| {
        let forbidden =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
        Some((403, forbidden))
    });
    let patched = patch_finalizers(&context, patch()).await;
    assert!(matches!(patched, Err(Error::Api(_))), "{patched:?}");
}

fn patch() -> FinalizerPatch {
    FinalizerPatch {
        actor: Key::new("ns", "a"),
        operations: Vec::new(),
    }
}

/// BIND-47: the annotation may belong to another field manager. The status of the workload, which changes at any time,
/// may lose a field between the read and the dry run; a second read shows that our apply does not remove it.
#[tokio::test]
async fn annotation_with_the_actor_is_tried_again_on_a_changed_workload_and_left_to_its_manager() {
    fn changed(request_line: &str) -> Option<(u16, serde_json::Value)> {
        let (version, status) = match request_line.split_once(' ')?.0 {
            "GET" => ("1", json!({"readyReplicas": 1, "unavailableReplicas": 1})),
            _ => ("2", json!({"readyReplicas": 2})),
        };
        let metadata = json!({"name": "web", "uid": "uid-of-web", "resourceVersion": version});
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "status": status,
        });
        Some((200, body))
    }
    fn owned(request_line: &str) -> Option<(u16, serde_json::Value)> {
        let cause = json!({
            "reason": "FieldManagerConflict", "message": "conflict with \"argo\"",
            "field": ".metadata.annotations.asya.sh/managed-by",
        });
        let conflict = json!({
            "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
            "details": {"causes": [cause]},
        });
        match request_line.split_once(' ')?.0 {
            "GET" => changed(request_line),
            _ => Some((409, conflict)),
        }
    }
    let key = Key::new("ns", "a");
    let context = context_with(changed);
    let workload = serve_deployment(&context);
    let written = foreign_fields::annotate_with_actor(&context, &key, &workload).await;
    assert!(matches!(written, Err(Error::Conflict(_))), "{written:?}");
    let removed = foreign_fields::remove_actor_annotation(&context, "ns", &workload).await;
    assert!(matches!(removed, Err(Error::Conflict(_))), "{removed:?}");

    let context = context_with(owned);
    let workload = serve_deployment(&context);
    let left = foreign_fields::annotate_with_actor(&context, &key, &workload).await;
    assert!(left.is_ok(), "{left:?}");
}
