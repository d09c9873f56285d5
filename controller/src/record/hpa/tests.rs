use serde_json::{Value, json};

use super::HpaRecord;
use crate::record::{Enqueue, Key, Projected, Record};

fn decode(object: &Value) -> HpaRecord {
    let projected: Projected<HpaRecord> = serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(projected.record).unwrap()
}

/// An HPA as KEDA and the HPA controller write it.
fn of_keda() -> Value {
    json!({
        "metadata": {
            "name": "keda-hpa-a", "namespace": "ns", "uid": "u-1", "resourceVersion": "7",
            "labels": {"asya.sh/actor": "a"},
            "ownerReferences": [
                {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "a", "uid": "u-so", "controller": true},
            ],
        },
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"}, "maxReplicas": 50},
        "status": {
            "currentReplicas": 2, "desiredReplicas": 3,
            "currentMetrics": [{"type": "External", "external": {"current": {"averageValue": "7"}}}],
            "conditions": [
                {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "lastTransitionTime": "2026-01-01T00:00:01Z"},
            ],
        },
    })
}

#[test]
fn record_holds_target_owner_and_desired_replicas() {
    let record = decode(&of_keda());
    assert_eq!(
        (&*record.target.kind, &*record.target.name),
        ("Deployment", "w")
    );
    assert_eq!(&*record.metadata.controller.as_ref().unwrap().uid, "u-so");
    assert_eq!((record.desired, record.inactive), (3, None));
}

/// The fields that the HPA controller writes at every sync do not enqueue a reconcile (KEDA-11).
#[test]
fn measurements_do_not_affect_equality() {
    let mut later = of_keda();
    later["status"]["currentMetrics"][0]["external"]["current"]["averageValue"] = json!("8");
    later["status"]["currentReplicas"] = json!(3);
    assert_eq!(decode(&later), decode(&of_keda()));
    later["status"]["desiredReplicas"] = json!(4);
    assert_ne!(decode(&later), decode(&of_keda()));
}

/// KEDA-10
#[test]
fn inactive_hpa_reports_reason_and_transition_time() {
    let mut object = of_keda();
    let condition = &mut object["status"]["conditions"][1];
    condition["status"] = json!("False");
    condition["reason"] = json!("FailedGetExternalMetric");
    condition["message"] = json!("no response");
    let inactive = decode(&object).inactive.unwrap();
    assert_eq!(
        (&*inactive.reason, &*inactive.message),
        ("FailedGetExternalMetric", "no response")
    );
    assert_eq!(
        inactive.since.as_ref().unwrap().0.as_second(),
        1_767_225_601
    );
}

/// An HPA whose workload has no pods does not enqueue a reconcile (KEDA-10).
#[test]
fn hpa_without_pods_equals_one_not_evaluated_yet() {
    let mut new = of_keda();
    new["status"] = json!({"desiredReplicas": 0});
    let mut disabled = new.clone();
    disabled["status"]["conditions"] = json!([
        {"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    assert_eq!(decode(&disabled), decode(&new));
}

/// A competing HPA affects the actor of its scale target (KEDA-9).
#[test]
fn actor_label_is_used_only_on_hpas_owned_by_keda() {
    let actor = |name: &str| Enqueue::Actor(Key::new("ns", name));
    assert_eq!(decode(&of_keda()).to_enqueue(), actor("a"));
    let mut competing = of_keda();
    competing["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(decode(&competing).to_enqueue(), actor("w"));
}

#[test]
fn hpa_without_status_decodes() {
    let mut object = of_keda();
    object.as_object_mut().unwrap().remove("status");
    let record = decode(&object);
    assert_eq!((record.desired, record.inactive), (0, None));
}
