use std::sync::Arc;

use serde_json::{Value, json};

use super::{DeletionReviewer, ValidationMode};
use crate::index::Index;
use crate::outcome::{ReviewOutcome, ReviewReason};
use crate::review::AdmissionRequest;
use crate::testing::{actor, index_actor, installation};

fn review_deletion(
    reviewer: &DeletionReviewer,
    group: &str,
    kind: &str,
    object: &Value,
) -> ReviewOutcome {
    review_with_options(reviewer, (group, kind), object, &Value::Null)
}

fn review_with_options(
    reviewer: &DeletionReviewer,
    (group, kind): (&str, &str),
    object: &Value,
    options: &Value,
) -> ReviewOutcome {
    let (version, resource) = match kind {
        "AsyncActor" => ("v1alpha1", "asyncactors"),
        _ => ("v1", "customresourcedefinitions"),
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "DELETE", "oldObject": object, "options": options,
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
        },
    });
    reviewer.review(&AdmissionRequest::read(review.to_string().as_bytes()).unwrap())
}

fn reviewer(mode: ValidationMode, actors: &[Value]) -> DeletionReviewer {
    let index = Arc::new(Index::new(installation()));
    for actor in actors {
        index_actor(&index, actor);
    }
    DeletionReviewer { mode, index }
}

/// An actor whose queue holds this many messages.
fn actor_with_messages(queued: i64, processing: i64, change: &Value) -> Value {
    let spec = json!({"transport": "mq", "queue": {"deletionPolicy": "DeleteIfEmpty"}});
    let mut object = actor("models", "a", &spec);
    object["metadata"]["finalizers"] = json!(["asya.sh/finalizer"]);
    object["status"] = json!({
        "queuedMessages": queued, "processingMessages": processing,
        "queue": {"transport": "mq", "name": "asya-a"},
    });
    json_patch::merge(&mut object, change);
    object
}

/// QUE-40
#[test]
fn delete_if_empty_denies_deletion_of_an_actor_with_messages() {
    let enforce = reviewer(ValidationMode::Enforce, &[]);
    let none = json!({});
    let outcome = review_deletion(
        &enforce,
        "asya.sh",
        "AsyncActor",
        &actor_with_messages(10, 2, &none),
    );
    assert_eq!(outcome.reason, ReviewReason::HoldsMessages);
    let denied = outcome.response.denied.unwrap();
    assert_eq!(denied.code, 403);
    for part in ["queue asya-a holds 12 messages", "Retain", "Drain"] {
        assert!(denied.message.contains(part), "{}", denied.message);
    }
    for (object, case) in [
        (actor_with_messages(0, 0, &none), "empty queue"),
        (
            actor_with_messages(1, 0, &json!({"status": null})),
            "not counted yet",
        ),
        (
            actor_with_messages(1, 0, &json!({"spec": {"queue": null}})),
            "policy Delete",
        ),
        (
            actor_with_messages(
                1,
                0,
                &json!({"spec": {"queue": {"deletionPolicy": "Drain"}}}),
            ),
            "policy Drain",
        ),
        (
            actor_with_messages(1, 0, &json!({"spec": {"deletionPolicy": "Orphan"}})),
            "orphaned queue",
        ),
        (
            actor_with_messages(1, 0, &json!({"metadata": {"finalizers": null}})),
            "no finalizer",
        ),
        (
            actor_with_messages(
                1,
                0,
                &json!({"metadata": {"annotations": {"asya.sh/skip-queue-deletion": "true"}}}),
            ),
            "queue deletion is skipped",
        ),
        (
            actor_with_messages(
                1,
                0,
                &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
            "already being deleted",
        ),
    ] {
        let outcome = review_deletion(&enforce, "asya.sh", "AsyncActor", &object);
        assert_eq!(outcome.reason, ReviewReason::Valid, "{case}");
        assert!(outcome.response.denied.is_none(), "{case}");
    }
    let warns = reviewer(ValidationMode::Warn, &[]);
    let warned = review_deletion(
        &warns,
        "asya.sh",
        "AsyncActor",
        &actor_with_messages(1, 0, &none),
    )
    .response;
    assert_eq!((warned.denied, warned.warnings.len()), (None, 1));
    let off = review_deletion(
        &reviewer(ValidationMode::Off, &[]),
        "asya.sh",
        "AsyncActor",
        &actor_with_messages(1, 0, &none),
    );
    assert_eq!(off.reason, ReviewReason::Off);
}

/// QUE-49
#[test]
fn crd_deletion_is_denied_while_actors_have_queues() {
    let definition = |annotations: Value| json!({"metadata": {"name": "asyncactors.asya.sh", "annotations": annotations}});
    let delete_crd = |reviewer: &DeletionReviewer, object: &Value| {
        review_deletion(
            reviewer,
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            object,
        )
    };
    let mut new = actor("models", "new", &json!({"transport": "mq"}));
    new["status"] = json!({});
    let with_queues = reviewer(
        ValidationMode::Enforce,
        &[actor_with_messages(0, 0, &json!({})), new.clone()],
    );
    let outcome = delete_crd(&with_queues, &definition(Value::Null));
    assert_eq!(outcome.reason, ReviewReason::ActorsLeft);
    let text = outcome.response.denied.unwrap().message;
    for part in [
        "1 AsyncActor has a queue (models/a)",
        "Retain",
        "asya.sh/allow-deletion",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let allowed = definition(json!({"asya.sh/allow-deletion": "true"}));
    assert_eq!(
        delete_crd(&with_queues, &allowed).reason,
        ReviewReason::Valid
    );
    let other = json!({"metadata": {"name": "scaledobjects.keda.sh"}});
    assert_eq!(delete_crd(&with_queues, &other).reason, ReviewReason::Valid);
    let without_queues = reviewer(ValidationMode::Enforce, &[new]);
    assert_eq!(
        delete_crd(&without_queues, &definition(Value::Null)).reason,
        ReviewReason::Valid
    );
    let unreadable = delete_crd(&with_queues, &json!(7));
    assert_eq!(unreadable.reason, ReviewReason::Unreadable);
    assert!(unreadable.response.denied.is_none());
}

/// FW-23: the garbage collector deletes the children of a foreground deletion before the operator can orphan them.
#[test]
fn foreground_deletion_of_an_actor_that_keeps_its_children_is_denied() {
    let enforce = reviewer(ValidationMode::Enforce, &[]);
    let review = |policy: &str, options: Value| {
        let object = actor_with_messages(0, 0, &json!({"spec": {"deletionPolicy": policy}}));
        review_with_options(&enforce, ("asya.sh", "AsyncActor"), &object, &options)
    };
    let foreground = || json!({"kind": "DeleteOptions", "propagationPolicy": "Foreground"});
    let outcome = review("Orphan", foreground());
    assert_eq!(outcome.reason, ReviewReason::LosesOrphans);
    let denied = outcome.response.denied.unwrap();
    assert_eq!(denied.code, 403);
    assert!(denied.message.contains("--cascade=background"));
    for (policy, options) in [
        ("Delete", foreground()),
        ("Orphan", json!({"propagationPolicy": "Background"})),
        ("Orphan", json!({"propagationPolicy": "Orphan"})),
        ("Orphan", json!({})),
        ("Orphan", json!(7)),
        ("Orphan", Value::Null),
    ] {
        let outcome = review(policy, options.clone());
        assert_eq!(outcome.reason, ReviewReason::Valid, "{policy} {options}");
    }
}
