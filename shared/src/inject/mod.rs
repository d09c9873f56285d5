//! Renders the contents of pods, and the objects that create them, as JSON: pure functions of an actor and the
//! operator's configuration.
//!
//! The user's template is kept as written; the operator only adds to it. A field of an unexpected type is left alone,
//! so that the user sees the API server's error for it (API-5).

pub mod bound;
mod keyed;
mod labels;
mod limits;
mod objects;
mod runtime;
mod sidecar;
mod template;
mod volumes;

#[cfg(test)]
pub(crate) mod testing;

pub use labels::{pod_labels, selector};
pub use limits::{default_limits, limits_to_set, required_limits};
pub use objects::{
    Replicas, WorkloadObject, runtime_config_map, service_account, service_account_name, workload,
};
pub use template::{PodInputs, pod_template};

use serde_json::{Map, Value};

/// The object at `key`, created if missing; `None` if the value has another type.
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

/// The list at `key`, created if missing; `None` if the value has another type.
fn list_at<'a>(parent: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Vec<Value>> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut()
}

/// Whether `key` is missing or null.
fn is_unset(object: &Map<String, Value>, key: &str) -> bool {
    object.get(key).is_none_or(Value::is_null)
}
