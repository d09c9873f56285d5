//! The `scale` subresource of workloads.

use serde_json::{Value, json};

use super::id::Id;
use super::managed::Writer;
use super::status::Failure;
use super::store::Store;

/// The scale of an object.
///
/// # Errors
/// If the object does not exist.
pub fn get(store: &Store, id: &Id) -> Result<Value, Failure> {
    let live = store.get(id).ok_or_else(|| Failure::not_found(id))?;
    let metadata = &live["metadata"];
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "spec": {"replicas": live["spec"]["replicas"].as_u64().unwrap_or(1)},
        "status": {"replicas": live["status"]["replicas"].as_u64().unwrap_or_default()},
    }))
}

/// Sets the number of replicas.
///
/// # Errors
/// If the object does not exist, or its version differs from that of the patch.
pub fn patch(store: &mut Store, id: &Id, patch: &Value, writer: &Writer) -> Result<Value, Failure> {
    let live = store.get(id).ok_or_else(|| Failure::not_found(id))?;
    let mut object = live.to_value();
    let version = &patch["metadata"]["resourceVersion"];
    if version.is_string() {
        object["metadata"]["resourceVersion"] = version.clone();
    }
    object["spec"]["replicas"] = patch["spec"]["replicas"].clone();
    store.update(id, object, writer)?;
    get(store, id)
}
