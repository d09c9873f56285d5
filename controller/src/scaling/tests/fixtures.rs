//! Cached objects of KEDA for the tests of plan, condition and replicas.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::record::{
    ChildRecord, HpaRecord, Projected, Record, ScaledObjectRecord, TriggerAuthentication,
};

fn record<R: Record>(object: &Value) -> Arc<R> {
    let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
    projected.record
}

fn merge(object: &mut Value, extra: &Value) {
    match (object, extra) {
        (Value::Object(object), Value::Object(extra)) => {
            for (key, value) in extra {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, extra) => *object = extra.clone(),
    }
}

/// An object of actor `a`, last applied with hash `h`.
fn applied(name: &str, uid: &str) -> Value {
    json!({"metadata": {
        "name": name, "namespace": "ns", "uid": uid, "resourceVersion": "7",
        "annotations": {"asya.sh/applied-hash": "h"},
        "ownerReferences": [{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "u-a", "controller": true}],
        "managedFields": [{"manager": "asya-operator/scaledobject", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
    }})
}

/// Actor `a`'s `ScaledObject`, with `extra` merged in.
pub fn scaled_object(extra: &Value) -> Arc<ScaledObjectRecord> {
    let mut object = applied("a", "u-so");
    object["spec"] =
        json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}});
    merge(&mut object, extra);
    record(&object)
}

/// Actor `a`'s `TriggerAuthentication`, with `extra` merged in.
pub fn trigger_authentication(extra: &Value) -> Arc<ChildRecord<TriggerAuthentication>> {
    let mut object = applied("a-trigger-auth", "u-ta");
    merge(&mut object, extra);
    record(&object)
}

/// The HPA that KEDA created for [`scaled_object`], with `extra` merged in.
pub fn hpa(extra: &Value) -> Arc<HpaRecord> {
    let mut object = json!({
        "metadata": {
            "name": "keda-hpa-a", "namespace": "ns", "uid": "u-hpa", "resourceVersion": "7",
            "ownerReferences": [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "a", "uid": "u-so", "controller": true}],
        },
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        "status": {"desiredReplicas": 3},
    });
    merge(&mut object, extra);
    record(&object)
}
