use serde_json::{Value, json};

use super::{KedaReady, ScaledObjectRecord};
use crate::record::{Enqueue, Key, Seen};

fn decode(object: &Value) -> ScaledObjectRecord {
    let seen: Seen<ScaledObjectRecord> = serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(seen.record).unwrap()
}

/// As KEDA leaves one of ours.
fn ours() -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "u-1", "resourceVersion": "7",
            "annotations": {"asya.sh/applied-hash": "h"},
            "finalizers": ["finalizer.keda.sh"],
            "labels": {"scaledobject.keda.sh/name": "a"},
            "ownerReferences": [
                {"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "u-a", "controller": true},
            ],
            "managedFields": [
                {"manager": "keda", "operation": "Update", "fieldsV1": {"f:metadata": {"f:finalizers": {}}}},
                {"manager": "asya-operator/scaledobject", "operation": "Apply", "fieldsV1": {"f:spec": {"f:triggers": {}}}},
            ],
        },
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a"}, "triggers": [{"type": "rabbitmq"}]},
        "status": {
            "hpaName": "keda-hpa-a",
            "lastActiveTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "Ready", "status": "True", "message": "ready", "reason": "ScaledObjectReady"},
                {"type": "Active", "status": "False"},
            ],
        },
    })
}

#[test]
fn record_holds_target_hpa_and_what_we_own() {
    let record = decode(&ours());
    let target = &record.target;
    assert_eq!(
        (&*target.group, &*target.kind, &*target.name),
        ("apps", "StatefulSet", "a")
    );
    assert_eq!(record.hpa_name.as_deref(), Some("keda-hpa-a"));
    assert_eq!(record.last.hash.as_deref(), Some("h"));
    assert!(record.last.fingerprint.is_some());
    assert_eq!((record.ready, record.paused), (KedaReady::True, false));
}

/// KEDA-11: KEDA writes these at every look at the queue.
#[test]
fn activity_and_time_of_activity_make_no_difference() {
    let mut later = ours();
    later["status"]["lastActiveTime"] = json!("2026-01-01T00:00:10Z");
    later["status"]["conditions"][1]["status"] = json!("True");
    later["metadata"]["resourceVersion"] = json!("8");
    assert_eq!(decode(&later), decode(&ours()));
    for (pointer, value) in [
        ("/status/conditions/0/status", json!("False")),
        ("/status/hpaName", json!("other")),
        ("/spec/scaleTargetRef/name", json!("b")),
        ("/metadata/annotations/asya.sh~1applied-hash", json!("i")),
        (
            "/metadata/managedFields/1/fieldsV1/f:spec",
            json!({"f:minReplicaCount": {}}),
        ),
    ] {
        let mut other = ours();
        *other.pointer_mut(pointer).unwrap() = value;
        assert_ne!(decode(&other), decode(&ours()), "{pointer}");
    }
}

/// KEDA-10
#[test]
fn readiness_is_what_keda_says_and_no_guess() {
    for (conditions, wanted) in [
        (json!([]), KedaReady::Unknown),
        (json!(null), KedaReady::Unknown),
        (
            json!([{"type": "Ready", "status": "Unknown"}]),
            KedaReady::Unknown,
        ),
        (
            json!([{"type": "Active", "status": "False"}]),
            KedaReady::Unknown,
        ),
        (
            json!([{"type": "Ready", "status": "True"}]),
            KedaReady::True,
        ),
        (
            json!([{"type": "Ready", "status": "False", "message": "no queue"}]),
            KedaReady::False("no queue".into()),
        ),
    ] {
        let mut object = ours();
        object["status"]["conditions"] = conditions.clone();
        assert_eq!(decode(&object).ready, wanted, "{conditions}");
    }
}

/// KEDA-9: two versions of a kind are one object, and a missing kind is a Deployment to KEDA.
#[test]
fn target_is_free_of_version_and_complete() {
    let target = |reference: Value| {
        let mut object = ours();
        object["spec"]["scaleTargetRef"] = reference;
        decode(&object).target
    };
    let deployment = target(json!({"name": "b"}));
    assert_eq!(
        (&*deployment.group, &*deployment.kind, &*deployment.name),
        ("apps", "Deployment", "b")
    );
    assert_eq!(
        target(json!({"apiVersion": "apps/v9", "kind": "Deployment", "name": "b"})),
        deployment
    );
    assert_eq!(
        &*target(json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "b"})).group,
        ""
    );
}

/// KEDA-9: a rival is found by what it scales.
#[test]
fn ours_concerns_its_actor_and_a_rival_that_of_its_target() {
    assert_eq!(
        super::Record::concerns(&decode(&ours())),
        Enqueue::Actor(Key::new("ns", "a"))
    );
    let mut rival = ours();
    rival["metadata"]["ownerReferences"][0]["kind"] = json!("Model");
    rival["metadata"]["ownerReferences"][0]["name"] = json!("m");
    rival["metadata"]["name"] = json!("rival");
    rival["spec"]["scaleTargetRef"] = json!({"name": "b"});
    assert_eq!(
        super::Record::concerns(&decode(&rival)),
        Enqueue::Actor(Key::new("ns", "b"))
    );
}

/// KEDA-7: what the user tells KEDA by annotation.
#[test]
fn pause_is_read_as_keda_reads_it() {
    let paused = |annotations: Value| {
        let mut object = ours();
        object["metadata"]["annotations"] = annotations;
        decode(&object).paused
    };
    for yes in [
        json!({"autoscaling.keda.sh/paused": "true"}),
        json!({"autoscaling.keda.sh/paused": ""}),
        json!({"autoscaling.keda.sh/paused-replicas": "0"}),
    ] {
        assert!(paused(yes.clone()), "{yes}");
    }
    assert!(!paused(json!({"autoscaling.keda.sh/paused": "False"})));
}

#[test]
fn bare_object_is_a_record_too() {
    let bare =
        json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"}});
    assert_eq!(&*decode(&bare).target.name, "");
}
