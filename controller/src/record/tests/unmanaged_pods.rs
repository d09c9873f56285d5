//! Pods that nothing controls.

use asya_shared::api::WorkloadKind;
use serde_json::json;

use super::{PodRecord, decode, metadata};

/// FW-22
#[test]
fn pod_that_nothing_controls_is_recognized_by_the_labels_that_our_workload_selects() {
    let owners = |controller: bool| json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "u", "controller": controller}]);
    let bound = json!({"asya.sh/injected-by": "actor-uid"});
    for (kind, app, owners, annotations, expected) in [
        (
            "statefulset",
            "a",
            json!([]),
            json!({}),
            Some(WorkloadKind::StatefulSet),
        ),
        (
            "deployment",
            "a",
            json!([]),
            json!({}),
            Some(WorkloadKind::Deployment),
        ),
        (
            "statefulset",
            "a",
            owners(false),
            json!({}),
            Some(WorkloadKind::StatefulSet),
        ),
        ("statefulset", "a", owners(true), json!({}), None),
        ("statefulset", "quarantine", json!([]), json!({}), None),
        ("other", "a", json!([]), json!({}), None),
        ("statefulset", "a", json!([]), bound, None),
    ] {
        let labels = json!({"app": app, "asya.sh/asya": "a", "asya.sh/workload": kind});
        let extra =
            json!({"labels": labels, "ownerReferences": owners, "annotations": annotations});
        let record: PodRecord = decode(&json!({"metadata": metadata(&extra)}));
        assert_eq!(record.unmanaged_of, expected, "{extra}");
    }
}
