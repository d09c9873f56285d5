use asya_shared::names::manager;
use asya_shared::resolve::{GroupKind, Related, resolver};
use serde_json::json;

use super::TargetSnapshot;

/// BIND-45, BIND-50
#[test]
fn template_sidecar_is_detected_through_the_owner_of_the_workload() {
    let workspace = json!({
        "apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "metadata": {"name": "phi", "namespace": "ns", "uid": "phi"},
        "inference": {"preset": {"name": "phi-4"}}, "resource": {"count": 1},
    });
    let owner = json!({"apiVersion": "kaito.sh/v1beta1", "kind": "Workspace", "name": "phi", "uid": "phi", "controller": true});
    let deployment = |manager: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "model", "namespace": "ns", "uid": "model", "ownerReferences": [owner],
                "managedFields": [{
                    "manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:template": {}}},
                }],
            },
            "spec": {
                "replicas": 2, "selector": {"matchLabels": {"app": "model"}},
                "template": {
                    "metadata": {"labels": {"app": "model", "kaito.sh/workspace": "phi"}, "annotations": {"asya.sh/injected-by": "younger"}},
                    "spec": {"containers": [{"name": "model", "image": "model:1"}]},
                },
            },
        })
    };
    for (manager, is_owned) in [(manager::TEMPLATE, true), ("kubectl", false)] {
        let mut related = Related::default();
        let kind = GroupKind {
            group: "apps",
            kind: "Deployment",
        };
        related.objects.insert(kind, vec![deployment(manager)]);
        let snapshot = TargetSnapshot {
            resolution: resolver("kaito.sh", "Workspace").resolve(&workspace, &related),
            replicas: None,
            uid: "phi".into(),
            spec_hash: "spec".into(),
            our_template_fields: None,
            forbidden_kind: None,
        };
        let snapshot = snapshot.with_workloads(&workspace, &related);
        assert_eq!(snapshot.replicas, Some(2));
        let ownership = snapshot.our_template_fields;
        assert_eq!(ownership.is_some(), is_owned, "{manager}");
        assert!(ownership.is_none_or(
            |ownership| !ownership.may_belong_to("older") && ownership.may_belong_to("younger")
        ));
    }
}
