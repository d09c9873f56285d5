use serde_json::{Value, json};

use super::HpaRecord;
use crate::record::{Enqueue, Key, Record, Seen};

fn decode(object: &Value) -> HpaRecord {
    let seen: Seen<HpaRecord> = serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(seen.record).unwrap()
}

/// As KEDA and the HPA controller leave one.
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
fn record_holds_target_owner_and_what_is_asked_for() {
    let record = decode(&of_keda());
    assert_eq!(
        (&*record.target.kind, &*record.target.name),
        ("Deployment", "w")
    );
    assert_eq!(&*record.metadata.controller.as_ref().unwrap().uid, "u-so");
    assert_eq!((record.desired, record.inactive), (3, None));
}

/// KEDA-11: what the HPA controller writes at every look makes no difference.
#[test]
fn measurements_make_no_difference() {
    let mut later = of_keda();
    later["status"]["currentMetrics"][0]["external"]["current"]["averageValue"] = json!("8");
    later["status"]["currentReplicas"] = json!(3);
    assert_eq!(decode(&later), decode(&of_keda()));
    later["status"]["desiredReplicas"] = json!(4);
    assert_ne!(decode(&later), decode(&of_keda()));
}

/// KEDA-10
#[test]
fn hpa_that_does_not_scale_says_why_and_since_when() {
    let mut object = of_keda();
    let condition = &mut object["status"]["conditions"][1];
    condition["status"] = json!("False");
    condition["reason"] = json!("FailedGetExternalMetric");
    condition["message"] = json!("no answer");
    let inactive = decode(&object).inactive.unwrap();
    assert_eq!(
        (&*inactive.reason, &*inactive.message),
        ("FailedGetExternalMetric", "no answer")
    );
    assert_eq!(
        inactive.since.as_ref().unwrap().0.as_second(),
        1_767_225_601
    );
}

/// KEDA-10: an HPA that finds no pods wakes nobody.
#[test]
fn hpa_without_pods_is_as_one_that_has_not_looked() {
    let mut new = of_keda();
    new["status"] = json!({"desiredReplicas": 0});
    let mut asleep = new.clone();
    asleep["status"]["conditions"] = json!([
        {"type": "ScalingActive", "status": "False", "reason": "ScalingDisabled", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    assert_eq!(decode(&asleep), decode(&new));
}

/// KEDA-9: a rival is found by what it scales.
#[test]
fn label_counts_only_on_keda_s_own() {
    let actor = |name: &str| Enqueue::Actor(Key::new("ns", name));
    assert_eq!(decode(&of_keda()).concerns(), actor("a"));
    let mut rival = of_keda();
    rival["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(decode(&rival).concerns(), actor("w"));
}

#[test]
fn new_hpa_without_a_status_is_a_record_too() {
    let mut object = of_keda();
    object.as_object_mut().unwrap().remove("status");
    let record = decode(&object);
    assert_eq!((record.desired, record.inactive), (0, None));
}
