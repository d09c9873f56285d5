//! Ownership of fields, as it moves between field managers.
//!
//! To *take over* fields is to become their owner, so that the next apply removes those that it does not contain: from
//! the Go operator (WRK-7), or from kubectl and Helm (FW-22, annotation `asya.sh/reclaim-fields`). To *hand off* fields
//! is to make another manager their owner, so that they keep their values: `spec.replicas` of a workload that an
//! autoscaler scales (WRK-3). To *give up* fields is to stop owning them: those without another owner are removed.
//!
//! This module merges the entries of kubectl and Helm in `managedFields` into ours.

use asya_shared::names::manager;
use serde_json::{Map, Value, json};

use crate::record::is_kubectl_or_helm;

/// Merges the entries of kubectl and Helm in `metadata.managedFields` into the operator's; `None` if there are none.
///
/// Excludes the number of replicas, so that whatever scales the workload keeps doing so (WRK-3).
pub fn kubectl_helm_fields_taken_over(entries: &[Value]) -> Option<Vec<Value>> {
    let (of_kubectl_or_helm, mut kept): (Vec<&Value>, Vec<&Value>) = entries
        .iter()
        .partition(|entry| is_kubectl_or_helm_entry(entry));
    if of_kubectl_or_helm.is_empty() {
        return None;
    }
    let own = kept.iter().position(|entry| is_ours(entry));
    let mut own = own.map_or_else(
        || json!({"manager": manager::WORKLOAD, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}),
        |index| kept.remove(index).clone(),
    );
    let mut fields = own["fieldsV1"].as_object().cloned().unwrap_or_default();
    for entry in of_kubectl_or_helm {
        let mut taken = entry["fieldsV1"].as_object().cloned().unwrap_or_default();
        if let Some(spec) = taken.get_mut("f:spec").and_then(Value::as_object_mut) {
            spec.remove("f:replicas");
        }
        unite(&mut fields, taken);
    }
    own["fieldsV1"] = Value::Object(fields);
    Some(kept.into_iter().cloned().chain([own]).collect())
}

fn is_kubectl_or_helm_entry(entry: &Value) -> bool {
    let manager = entry["manager"].as_str().unwrap_or_default();
    is_kubectl_or_helm(manager) && belongs_to_main_resource(entry)
}

fn is_ours(entry: &Value) -> bool {
    entry["manager"] == manager::WORKLOAD
        && entry["operation"] == "Apply"
        && belongs_to_main_resource(entry)
}

/// Fields written through a subresource are not in the object's own field set.
fn belongs_to_main_resource(entry: &Value) -> bool {
    entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Merges two field sets, which are trees without values.
fn unite(into: &mut Map<String, Value>, other: Map<String, Value>) {
    for (step, children) in other {
        let slot = into.entry(step).or_insert_with(|| json!({}));
        if let (Value::Object(slot), Value::Object(children)) = (slot, children) {
            unite(slot, children);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": fields})
    }

    /// FW-22
    #[test]
    fn kubectl_and_helm_fields_are_taken_over_and_others_are_kept() {
        let spec = |field: &str| json!({"f:spec": {field: {}}});
        let controller = entry("kube-controller-manager", "Update", &spec("f:x"));
        let restart = entry("kubectl-rollout", "Update", &spec("f:template"));
        let mut scale = entry("kubectl", "Update", &spec("f:replicas"));
        scale["subresource"] = json!("scale");
        let entries = [
            entry("asya-operator/workload", "Apply", &spec("f:a")),
            controller.clone(),
            entry("kubectl-set", "Update", &spec("f:b")),
            restart.clone(),
            entry("kubectl", "Apply", &spec("f:replicas")),
            entry(
                "Helm",
                "Update",
                &json!({"f:metadata": {"f:labels": {"f:c": {}}}}),
            ),
            scale.clone(),
        ];
        let merged =
            json!({"f:spec": {"f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {"f:c": {}}}});
        assert_eq!(
            kubectl_helm_fields_taken_over(&entries).unwrap(),
            [
                controller,
                restart,
                scale,
                entry("asya-operator/workload", "Apply", &merged)
            ]
        );
    }

    /// FW-22
    #[test]
    fn own_entry_is_created_if_nothing_was_applied_yet() {
        let entries = [entry("helm", "Update", &json!({"f:spec": {"f:b": {}}}))];
        let all = kubectl_helm_fields_taken_over(&entries).unwrap();
        assert_eq!(all.len(), 1);
        assert!(is_ours(&all[0]));
        assert_eq!(all[0]["fieldsV1"], json!({"f:spec": {"f:b": {}}}));
        assert_eq!(
            kubectl_helm_fields_taken_over(&all),
            None,
            "nothing is left to take over"
        );
    }
}
