use std::time::Duration;

use super::*;
use crate::reconcile::contention::drift_restore::RestoreTiming;
use crate::reconcile::plan::drift;
use crate::reconcile::plan::workload::plan_workload;

/// WRK-7
#[test]
fn fields_of_the_go_operator_are_taken_over_once() {
    let mut observed = new();
    let mut object = deployment(&observed);
    object["metadata"]["managedFields"] = json!([
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {}},
        {"manager": "manager", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]);
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(
        standalone_plan(&observed).workload,
        WorkloadStep::Update(WorkloadUpdate {
            take_over: Some(1),
            ..WorkloadUpdate::default()
        })
    );
    object["metadata"]["managedFields"][0] = json!({"manager": "asya-operator/workload", "operation": "Apply", "fieldsV1": {"f:spec": {}}});
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(standalone_plan(&observed).workload, UPDATE);
}

/// D13 (architecture, section 6)
#[test]
fn workload_of_an_earlier_actor_of_this_name_gets_the_new_owner_first() {
    let mut observed = new();
    let mut object = deployment(&observed);
    object["metadata"]["ownerReferences"][0]["uid"] = json!("earlier");
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(
        standalone_plan(&observed).workload,
        WorkloadStep::Update(WorkloadUpdate {
            previous_owner: Some("earlier".into()),
            ..WorkloadUpdate::default()
        })
    );
}

/// FW-22
#[test]
fn fields_that_kubectl_wrote_are_taken_over_once_and_only_on_request() {
    let mut object = deployment(&new());
    let fields = json!({"manager": "kubectl-set", "operation": "Update", "fieldsV1": {"f:spec": {"f:x": {}}}});
    object["metadata"]["managedFields"]
        .as_array_mut()
        .unwrap()
        .push(fields);
    assert_eq!(
        standalone_plan(&recorded(new(), &object)).workload,
        WorkloadStep::Keep
    );
    let annotated = json!({"annotations": {"asya.sh/reclaim-fields": "true"}});
    let requesting = || {
        let mut observed = observed(&actor(&annotated, &spec(&json!({})), &json!({})));
        observed.queue = ObservedQueue::Verified;
        observed
    };
    let step = WorkloadStep::Update(WorkloadUpdate {
        take_over_kubectl_helm_fields: true,
        ..WorkloadUpdate::default()
    });
    assert_eq!(
        standalone_plan(&recorded(requesting(), &object)).workload,
        step
    );
    object["metadata"]["annotations"]["asya.sh/reclaimed"] = json!("true");
    assert_eq!(
        standalone_plan(&recorded(requesting(), &object)).workload,
        WorkloadStep::Keep
    );
}

/// WRK-3
#[test]
fn replicas_are_restored_only_while_ours_and_handed_over_before_release() {
    let scaled = json!({"scaling": {"enabled": true}});
    let by_hpa = |extra: &Value| {
        let mut observed = with_spec(extra);
        let mut object = deployment(&observed);
        object["metadata"]["managedFields"][0]["fieldsV1"] = json!({"f:spec": {"f:selector": {}}});
        observed = recorded(observed, &object);
        observed.previous.inventory[0].fingerprint = Some(
            workload(&object)
                .last_applied
                .fingerprint
                .unwrap()
                .to_string(),
        );
        standalone_plan(&observed).workload
    };
    assert_eq!(by_hpa(&json!({})), UPDATE, "another client scaled it");
    assert_eq!(by_hpa(&scaled), WorkloadStep::Keep, "KEDA scaled it");

    let mut observed = with_spec(&scaled);
    let mut object = deployment(&observed);
    object["metadata"]["annotations"]["asya.sh/applied-hash"] = json!("before scaling was on");
    observed = recorded(observed, &object);
    let first = WorkloadStep::Update(WorkloadUpdate {
        hand_off_replicas: true,
        ..WorkloadUpdate::default()
    });
    assert_eq!(standalone_plan(&observed).workload, first);
}

/// WRK-8, WRK-3, WRK-4
#[test]
fn repeated_drift_is_restored_with_backoff_unless_the_desired_state_changes() {
    let changed = |status: &Value| {
        let mut observed = new();
        let mut object = deployment(&observed);
        observed = recorded(observed, &object);
        object["metadata"]["managedFields"] = json!([]);
        object["metadata"]["annotations"] = json!({});
        observed.workload = Child::Ours(workload(&object));
        observed.previous.conflicts = serde_json::from_value(status.clone()).unwrap();
        observed
    };
    let waiting = |uid: &str, until: &str| {
        json!([{
            "field": "spec.replicas", "part": "Workload", "uid": uid, "count": 7, "losses": 7, "state": "Waiting",
            "lastTime": "2026-01-01T00:00:30Z", "retryTime": until,
        }])
    };
    let planned = |observed: &Observed| {
        let step = plan_workload(observed);
        let drift = drift::plan_drift(observed, &step, None, now());
        let step = drift.restrict_workload(step);
        assert_eq!(standalone_plan(observed).workload, step);
        (step, drift.workload)
    };
    let later = waiting("workload-uid", "2026-01-01T00:01:10Z");
    let wait = RestoreTiming::In(Duration::from_secs(10));
    assert_eq!(planned(&changed(&later)), (WorkloadStep::Keep, Some(wait)));
    for status in [
        json!([]),
        waiting("workload-uid", "2026-01-01T00:01:00Z"),
        waiting("one-that-is-gone", "2026-01-01T00:01:10Z"),
    ] {
        let step = planned(&changed(&status));
        assert_eq!(step, (UPDATE, Some(RestoreTiming::Now)), "{status}");
    }
    let mut other = changed(&later);
    other.previous.inventory[0].hash = Some("of another spec".to_owned());
    assert_eq!(
        planned(&other),
        (UPDATE, None),
        "the desired state has changed"
    );
    let mut unchanged = recorded(new(), &deployment(&new()));
    unchanged.previous.conflicts = serde_json::from_value(later).unwrap();
    assert_eq!(planned(&unchanged), (WorkloadStep::Keep, None));
}
