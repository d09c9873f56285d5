use std::sync::Arc;

use serde_json::{Value, json};

use super::{Deletions, Mode};
use crate::index::Index;
use crate::outcome::{Reason, Verdict};
use crate::review::Request;
use crate::testing::{actor, platform, show};

fn ask(judge: &Deletions, group: &str, kind: &str, object: &Value) -> Verdict {
    let (version, resource) = match kind {
        "AsyncActor" => ("v1alpha1", "asyncactors"),
        _ => ("v1", "customresourcedefinitions"),
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "DELETE", "oldObject": object,
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
        },
    });
    judge.judge(&Request::read(review.to_string().as_bytes()).unwrap())
}

fn judge(mode: Mode, actors: &[Value]) -> Deletions {
    let index = Arc::new(Index::new(platform()));
    for actor in actors {
        show(&index, actor);
    }
    Deletions { mode, index }
}

/// An actor whose queue holds this many messages.
fn holds(queued: i64, processing: i64, change: &Value) -> Value {
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
fn actor_with_messages_is_not_deleted_if_it_asks_for_that() {
    let enforce = judge(Mode::Enforce, &[]);
    let none = json!({});
    let verdict = ask(&enforce, "asya.sh", "AsyncActor", &holds(10, 2, &none));
    assert_eq!(verdict.reason, Reason::HoldsMessages);
    let denied = verdict.answer.denied.unwrap();
    assert_eq!(denied.code, 403);
    for part in ["queue asya-a holds 12 messages", "Retain", "Drain"] {
        assert!(denied.message.contains(part), "{}", denied.message);
    }
    for (object, why) in [
        (holds(0, 0, &none), "it is empty"),
        (holds(1, 0, &json!({"status": null})), "nobody counted"),
        (holds(1, 0, &json!({"spec": {"queue": null}})), "Delete"),
        (
            holds(
                1,
                0,
                &json!({"spec": {"queue": {"deletionPolicy": "Drain"}}}),
            ),
            "Drain waits",
        ),
        (
            holds(1, 0, &json!({"spec": {"deletionPolicy": "Orphan"}})),
            "it stays",
        ),
        (
            holds(1, 0, &json!({"metadata": {"finalizers": null}})),
            "nothing was made",
        ),
        (
            holds(
                1,
                0,
                &json!({"metadata": {"annotations": {"asya.sh/skip-queue-deletion": "true"}}}),
            ),
            "it stays",
        ),
        (
            holds(
                1,
                0,
                &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
            "it goes already",
        ),
    ] {
        let verdict = ask(&enforce, "asya.sh", "AsyncActor", &object);
        assert_eq!(verdict.reason, Reason::Valid, "{why}");
        assert!(verdict.answer.denied.is_none(), "{why}");
    }
    let warns = judge(Mode::Warn, &[]);
    let warned = ask(&warns, "asya.sh", "AsyncActor", &holds(1, 0, &none)).answer;
    assert_eq!((warned.denied, warned.warnings.len()), (None, 1));
    let off = ask(
        &judge(Mode::Off, &[]),
        "asya.sh",
        "AsyncActor",
        &holds(1, 0, &none),
    );
    assert_eq!(off.reason, Reason::Off);
}

/// QUE-49
#[test]
fn definition_is_not_deleted_while_actors_have_queues() {
    let definition = |annotations: Value| json!({"metadata": {"name": "asyncactors.asya.sh", "annotations": annotations}});
    let of_kind = |judge: &Deletions, object: &Value| {
        ask(
            judge,
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            object,
        )
    };
    let mut new = actor("models", "new", &json!({"transport": "mq"}));
    new["status"] = json!({});
    let with = judge(Mode::Enforce, &[holds(0, 0, &json!({})), new.clone()]);
    let verdict = of_kind(&with, &definition(Value::Null));
    assert_eq!(verdict.reason, Reason::ActorsLeft);
    let text = verdict.answer.denied.unwrap().message;
    for part in [
        "1 AsyncActors have queues (models/a)",
        "Retain",
        "asya.sh/allow-deletion",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let allowed = definition(json!({"asya.sh/allow-deletion": "true"}));
    assert_eq!(of_kind(&with, &allowed).reason, Reason::Valid);
    let other = json!({"metadata": {"name": "scaledobjects.keda.sh"}});
    assert_eq!(of_kind(&with, &other).reason, Reason::Valid);
    let without = judge(Mode::Enforce, &[new]);
    assert_eq!(
        of_kind(&without, &definition(Value::Null)).reason,
        Reason::Valid
    );
    let unreadable = of_kind(&with, &json!(7));
    assert_eq!(unreadable.reason, Reason::Unreadable);
    assert!(unreadable.answer.denied.is_none());
}
