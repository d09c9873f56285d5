//! What pods must contain, and the objects that make them: everything here is a pure function from an
//! actor and the operator's configuration to JSON.
//!
//! The user's template stays as written; ours is added. Where something stands that is not of the
//! shape that we expect, it stays, so that the API server's refusal reaches the user (API-5).

pub mod bound;
mod keyed;
mod labels;
mod objects;
mod runtime;
mod sidecar;
mod template;
mod volumes;

#[cfg(test)]
pub(crate) mod testing;

pub use labels::{pod_labels, selector};
pub use objects::{
    Replicas, WorkloadObject, runtime_config_map, service_account, service_account_name, workload,
};
pub use template::{PodInputs, pod_template};

use serde_json::{Map, Value};

/// The object at `key`, made where there is none. `None` where something else stands.
fn object_at<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

/// The list at `key`, made where there is none. `None` where something else stands.
fn list_at<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Vec<Value>> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut()
}

/// Whether nothing is written at `key`.
fn is_unset(object: &Map<String, Value>, key: &str) -> bool {
    object.get(key).is_none_or(Value::is_null)
}
