//! Targets at zero when their actor is deleted.

use super::*;

/// SO-6
#[test]
fn target_scaled_by_its_queue_is_scaled_up_once_keda_has_released_it() {
    let object = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: None,
    };
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true, "minReplicas": 2, "maxReplicas": 4},
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let deleting = |status: &Value| {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let mut observed = observed(&actor(&deleted, &spec, status));
        observed.binding = Some(
            ObservedUnbinding {
                scaled: Some(object.clone()),
                ..ObservedUnbinding::default()
            }
            .into(),
        );
        observed
    };
    let mut observed = deleting(&json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}}));
    let scale_up = deletion(&observed).scale_from_zero.unwrap();
    assert_eq!((&scale_up.object, scale_up.replicas), (&object, 2));
    observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    assert_eq!(
        deletion(&observed).scale_from_zero,
        None,
        "KEDA still scales it"
    );
    assert_eq!(
        deletion(&deleting(&json!({}))).scale_from_zero,
        None,
        "not scaled by the queue"
    );
}

/// SAFE-24
#[test]
fn target_is_scaled_up_only_after_unbinding() {
    let object = ObjectRef {
        api_version: "serving.kserve.io/v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        name: "web".to_owned(),
        uid: None,
    };
    let path = vec!["metadata", "annotations"];
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true},
        "workloadRef": {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "web"},
    });
    let status = |rollout: &Value| json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}, "rollout": rollout});
    let planned_after = |value: Option<&str>, status: &Value| {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let mut observed = observed(&actor(&deleted, &spec, status));
        let target_object = TargetObject {
            object: object.clone(),
            roll_value: value.map(str::to_owned),
            ..TargetObject::default()
        };
        let unbinding = ObservedUnbinding {
            scaled_to_zero: true,
            scaled: Some(object.clone()),
            roll: Some(RolloutMethod::Annotate(object.clone(), path.clone())),
            objects: vec![target_object],
            ..ObservedUnbinding::default()
        };
        observed.binding = Some(unbinding.into());
        let plan = deletion(&observed);
        (plan.unbind, plan.scale_from_zero.is_some())
    };
    let planned = |value, rollout: &Value| planned_after(value, &status(rollout));
    let rollout = |value: &str, since: Option<&str>| json!({"value": value, "tries": 1, "generation": 2, "target": "spec", "since": since});
    let annotated = planned(Some("v"), &rollout("v", None));
    assert_eq!(
        annotated,
        (UnbindStep::GiveUp, false),
        "the annotation comes first"
    );
    let released = rollout("unbound", Some("2026-01-01T00:00:50Z"));
    let (unbind, scales_up) = planned(None, &released);
    assert!(
        matches!(unbind, UnbindStep::InProgress) && !scales_up,
        "{unbind:?}"
    );
    let scaled_by_others = json!({"rollout": released});
    assert_eq!(
        planned_after(None, &scaled_by_others),
        (UnbindStep::Done, false),
        "there is nothing to wait for"
    );
    let long_ago = rollout("unbound", Some("2026-01-01T00:00:20Z"));
    assert_eq!(planned(None, &long_ago), (UnbindStep::Done, true));
}
