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
    let seen: Projected<ChildRecord<TriggerAuthentication>> =
        serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(seen.record).unwrap()
}

/// KEDA-7
#[test]
fn drift_shows_in_what_we_own() {
    let with = |fields: Value| {
        decode(&json!({
            "annotations": {"asya.sh/applied-hash": "h"},
            "managedFields": [{"manager": "asya-operator/scaledobject", "operation": "Apply", "fieldsV1": fields}],
        }))
    };
    let ours = with(json!({"f:spec": {"f:secretTargetRef": {}}}));
    assert_eq!(ours.last.hash.as_deref(), Some("h"));
    assert!(ours.last.fingerprint.is_some());
    assert_ne!(ours, with(json!({"f:metadata": {"f:labels": {}}})));
}

#[test]
fn owner_or_else_label_names_the_actor_to_enqueue() {
    let owner = json!([{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "u-a", "controller": true}]);
    let actor = |name: &str| Enqueue::Actor(Key::new("ns", name));
    assert_eq!(
        decode(&json!({"ownerReferences": owner})).concerns(),
        actor("a")
    );
    assert_eq!(
        decode(&json!({"labels": {"asya.sh/actor": "b"}})).concerns(),
        actor("b")
    );
    assert_eq!(decode(&json!({})).concerns(), Enqueue::Nobody);
}
