use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};

use super::{PathElement, find_manager, first_unowned_field};

/// A `managedFields` entry as an API server writes it.
fn entry(
    (manager, operation): (&str, &str),
    subresource: &str,
    time: &str,
    fields: &Value,
) -> ManagedFieldsEntry {
    let mut entry = json!({
        "manager": manager, "operation": operation, "apiVersion": "apps/v1",
        "time": format!("2026-05-04T10:{time}Z"), "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    if !subresource.is_empty() {
        entry["subresource"] = json!(subresource);
    }
    serde_json::from_value(entry).unwrap()
}

fn roll() -> Vec<PathElement> {
    PathElement::path(&[
        "spec",
        "template",
        "metadata",
        "annotations",
        "asya.sh/roll",
    ])
}

fn in_template(metadata: &Value, spec: &Value) -> Value {
    json!({"f:spec": {"f:template": {"f:metadata": metadata, "f:spec": spec}}})
}

fn container(name: &str) -> Vec<PathElement> {
    let mut path = PathElement::path(&["spec", "template", "spec", "containers"]);
    path.push(PathElement::Item(json!({"name": name})));
    path
}

/// Entries of a Deployment created by kubectl, with our annotation and its controller's status.
fn deployment() -> Vec<ManagedFieldsEntry> {
    let containers = json!({"k:{\"name\":\"model\"}": {".": {}, "f:image": {}, "f:name": {}}});
    let annotations = json!({"f:annotations": {".": {}, "f:team": {}}, "f:labels": {"f:app": {}}});
    let template = in_template(&annotations, &json!({"f:containers": containers}));
    let mut ours = json!({"f:annotations": {"f:asya.sh/roll": {}}});
    ours = in_template(&ours, &json!({}));
    let status = json!({
        "f:metadata": {"f:annotations": {"f:deployment.kubernetes.io/revision": {}}},
        "f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:x": {}}}}},
        "f:status": {"f:replicas": {}},
    });
    let update = |manager| (manager, "Update");
    vec![
        entry(("asya-operator/roll", "Apply"), "", "59:00", &ours),
        entry(update("kubectl-create"), "", "00:00", &template),
        entry(
            update("kube-controller-manager"),
            "status",
            "58:00",
            &status,
        ),
    ]
}

fn owner(entries: &[ManagedFieldsEntry], path: &[PathElement]) -> Option<String> {
    find_manager(entries, path).map(|owner| owner.to_string())
}

/// CONF-8
#[test]
fn newest_other_owner_of_the_field_is_reported() {
    let mut entries = deployment();
    let annotation = in_template(
        &json!({"f:annotations": {"f:asya.sh/roll": {}}}),
        &json!({}),
    );
    entries.insert(0, entry(("new", "Apply"), "", "30:00", &annotation));
    entries.push(entry(("old", "Update"), "", "20:00", &annotation));
    assert_eq!(owner(&entries, &roll()).as_deref(), Some("new (Apply)"));
    assert_eq!(
        owner(&entries[1..], &roll()).as_deref(),
        Some("old (Update)")
    );
    assert_eq!(owner(&entries[..0], &roll()), None);
}

/// CONF-8
#[test]
fn owner_of_the_nearest_parent_is_reported_for_a_removed_field() {
    let creator = Some("probably kubectl-create (Update)");
    let mut entries = deployment();
    assert_eq!(owner(&entries, &roll()).as_deref(), creator);
    let sidecar = container("asya-sidecar");
    assert_eq!(owner(&entries, &sidecar).as_deref(), creator);

    let sibling = in_template(&json!({"f:labels": {"f:x": {}}}), &json!({}));
    entries.push(entry(("helm", "Update"), "", "40:00", &sibling));
    assert_eq!(
        owner(&entries, &roll()).as_deref(),
        creator,
        "annotations are nearer than the template"
    );
    let newer = in_template(&json!({"f:annotations": {"f:x": {}}}), &json!({}));
    entries.push(entry(("argocd-controller", "Update"), "", "50:00", &newer));
    let argo = Some("probably argocd-controller (Update)");
    assert_eq!(owner(&entries, &roll()).as_deref(), argo);

    let paused = json!({"f:spec": {"f:paused": {}}});
    let shallow = [entry(("kubectl-edit", "Update"), "", "50:00", &paused)];
    assert_eq!(
        owner(&shallow, &roll()),
        None,
        "owning some field of the spec is no evidence"
    );
}

/// CONF-8
#[test]
fn owner_of_an_atomic_list_owns_its_items() {
    let atomic = json!({"f:spec": {"f:workerGroupSpecs": {}}});
    let entries = [
        entry(
            ("kuberay", "Update"),
            "",
            "10:00",
            &json!({"f:spec": {"f:suspend": {}}}),
        ),
        entry(("user", "Apply"), "", "05:00", &atomic),
    ];
    let mut path = PathElement::path(&["spec", "workerGroupSpecs"]);
    path.push(PathElement::Item(json!({"groupName": "small"})));
    assert_eq!(owner(&entries, &path).as_deref(), Some("user (Apply)"));
}

/// CONF-8
#[test]
fn items_match_by_keys_in_any_order_and_subresources_own_what_they_set() {
    let ports = json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}}}}});
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let entries = [
        entry(("a", "Update"), "", "10:00", &ports),
        entry(("scaler", "Update"), "scale", "05:00", &replicas),
    ];
    let mut path = PathElement::path(&["spec", "ports"]);
    path.push(PathElement::Item(json!({"protocol": "TCP", "port": 80})));
    assert_eq!(owner(&entries, &path).as_deref(), Some("a (Update)"));
    let path = PathElement::path(&["spec", "replicas"]);
    assert_eq!(owner(&entries, &path).as_deref(), Some("scaler (Update)"));
}

/// CONF-5, CONF-8
#[test]
fn first_field_that_we_no_longer_own_is_the_lost_one() {
    let desired = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "a", "namespace": "ns", "labels": {"asya.sh/actor": "a"}},
        "spec": {"maxReplicaCount": 5, "minReplicaCount": 0, "triggers": [{"type": "rabbitmq"}]},
    });
    let owned =
        |spec: &Value| json!({"f:metadata": {"f:labels": {"f:asya.sh/actor": {}}}, "f:spec": spec});
    let all = json!({"f:maxReplicaCount": {}, "f:minReplicaCount": {}, "f:triggers": {}});
    let some = json!({"f:minReplicaCount": {}, "f:triggers": {}});
    let us = "asya-operator/scaledobject";
    let entries = |spec| {
        let max = json!({"f:spec": {"f:maxReplicaCount": {}}});
        vec![
            entry((us, "Update"), "status", "11:00", &json!({})),
            entry((us, "Apply"), "", "10:00", &owned(spec)),
            entry(("kubectl-edit", "Update"), "", "12:00", &max),
        ]
    };
    assert_eq!(first_unowned_field(&entries(&all), us, &desired), None);
    let path = first_unowned_field(&entries(&some), us, &desired).unwrap();
    assert_eq!(PathElement::text(&path), "spec.maxReplicaCount");
    let new_owner = owner(&entries(&some), &path);
    assert_eq!(new_owner.as_deref(), Some("kubectl-edit (Update)"));
    let labels = first_unowned_field(&[], us, &desired).unwrap();
    assert_eq!(PathElement::text(&labels), "metadata.labels[asya.sh/actor]");
}
