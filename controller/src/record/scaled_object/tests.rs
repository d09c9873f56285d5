use serde_json::{Value, json};

use super::{KedaReady, ScaledObjectRecord, ScalingPause};
use crate::record::{Enqueue, Key, Projected};

fn decode(object: &Value) -> ScaledObjectRecord {
    let projected: Projected<ScaledObjectRecord> =
        serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(projected.record).unwrap()
}

/// Our own `ScaledObject`, with KEDA's updates.
fn own() -> Value {
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
fn record_holds_target_hpa_and_owned_fields() {
    let record = decode(&own());
    let target = &record.target;
    assert_eq!(
        (&*target.group, &*target.kind, &*target.name),
        ("apps", "StatefulSet", "a")
    );
    assert_eq!(record.hpa_name.as_deref(), Some("keda-hpa-a"));
    assert_eq!(record.last_applied.hash.as_deref(), Some("h"));
    assert!(record.last_applied.fingerprint.is_some());
    assert_eq!(
        (record.ready, record.pause),
        (KedaReady::True, ScalingPause::None)
    );
}

/// KEDA writes these fields every time it polls the queue (KEDA-11).
#[test]
fn activity_does_not_affect_equality() {
    let mut later = own();
    later["status"]["lastActiveTime"] = json!("2026-01-01T00:00:10Z");
    later["status"]["conditions"][1]["status"] = json!("True");
    later["metadata"]["resourceVersion"] = json!("8");
    assert_eq!(decode(&later), decode(&own()));
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
        let mut other = own();
        *other.pointer_mut(pointer).unwrap() = value;
        assert_ne!(decode(&other), decode(&own()), "{pointer}");
    }
}

/// KEDA-10
#[test]
fn readiness_is_unknown_until_keda_reports_it() {
    for (conditions, expected) in [
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
        let mut object = own();
        object["status"]["conditions"] = conditions.clone();
        assert_eq!(decode(&object).ready, expected, "{conditions}");
    }
}

/// All versions of a kind are the same object, and KEDA defaults a missing kind to Deployment (KEDA-9).
#[test]
fn target_ignores_the_version_and_defaults_the_kind() {
    let target = |reference: Value| {
        let mut object = own();
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

/// A competing `ScaledObject` affects the actor of its scale target (KEDA-9).
#[test]
fn competing_object_enqueues_the_actor_of_its_target() {
    assert_eq!(
        super::Record::to_enqueue(&decode(&own())),
        Enqueue::Actor(Key::new("ns", "a"))
    );
    let mut competing = own();
    competing["metadata"]["ownerReferences"][0]["kind"] = json!("Model");
    competing["metadata"]["ownerReferences"][0]["name"] = json!("m");
    competing["metadata"]["name"] = json!("competing");
    competing["spec"]["scaleTargetRef"] = json!({"name": "b"});
    assert_eq!(
        super::Record::to_enqueue(&decode(&competing)),
        Enqueue::Actor(Key::new("ns", "b"))
    );
}

/// Annotations with which users pause KEDA (KEDA-7).
#[test]
fn pause_annotations_are_parsed_as_keda_does() {
    let paused = |annotations: Value| {
        let mut object = own();
        object["metadata"]["annotations"] = annotations;
        decode(&object).pause
    };
    for pausing in [
        json!({"autoscaling.keda.sh/paused": "true"}),
        json!({"autoscaling.keda.sh/paused": ""}),
        json!({"autoscaling.keda.sh/paused-replicas": "0"}),
    ] {
        assert_eq!(paused(pausing.clone()), ScalingPause::All, "{pausing}");
    }
    let running = json!({"autoscaling.keda.sh/paused": "False"});
    assert_eq!(paused(running), ScalingPause::None);
}

/// KEDA-7: KEDA 2.16 does not know this annotation, and reports no pause.
#[test]
fn pause_of_scaling_out_counts_if_keda_reports_it() {
    let name = "autoscaling.keda.sh/paused-scale-out";
    for (value, reported, expected) in [
        ("true", "True", ScalingPause::ScaleOut),
        ("true", "False", ScalingPause::None),
        ("false", "True", ScalingPause::None),
    ] {
        let mut object = own();
        object["metadata"]["annotations"] = json!({name: value});
        let conditions = json!([{"type": "Paused", "status": reported}]);
        object["status"]["conditions"] = conditions;
        assert_eq!(decode(&object).pause, expected, "{value} {reported}");
    }
}

#[test]
fn scaled_object_without_optional_fields_decodes() {
    let minimal =
        json!({"metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "1"}});
    assert_eq!(&*decode(&minimal).target.name, "");
}
