use serde_json::{Value, json};

use super::ChildRecord;
use crate::record::TriggerAuthentication;
use crate::record::{Enqueue, Key, Projected, Record};

fn decode(metadata: &Value) -> ChildRecord<TriggerAuthentication> {
    let mut object = json!({
        "metadata": {"name": "a-trigger-auth", "namespace": "ns", "uid": "u-1", "resourceVersion": "7"},
        "spec": {"secretTargetRef": [{"parameter": "password", "name": "s", "key": "k"}]},
    });
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    let projected: Projected<ChildRecord<TriggerAuthentication>> =
        serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(projected.record).unwrap()
}

/// KEDA-7
#[test]
fn record_changes_with_the_fields_we_own() {
    let with = |fields: Value| {
        decode(&json!({
            "annotations": {"asya.sh/applied-hash": "h"},
            "managedFields": [{"manager": "asya-operator/scaledobject", "operation": "Apply", "fieldsV1": fields}],
        }))
    };
    let original = with(json!({"f:spec": {"f:secretTargetRef": {}}}));
    assert_eq!(original.last_applied.hash.as_deref(), Some("h"));
    assert!(original.last_applied.fingerprint.is_some());
    assert_ne!(original, with(json!({"f:metadata": {"f:labels": {}}})));
}

#[test]
fn actor_to_enqueue_is_the_owner_or_else_the_label() {
    let owner = json!([{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "u-a", "controller": true}]);
    let actor = |name: &str| Enqueue::Actor(Key::new("ns", name));
    assert_eq!(
        decode(&json!({"ownerReferences": owner})).to_enqueue(),
        actor("a")
    );
    assert_eq!(
        decode(&json!({"labels": {"asya.sh/actor": "b"}})).to_enqueue(),
        actor("b")
    );
    assert_eq!(decode(&json!({})).to_enqueue(), Enqueue::Nothing);
}
