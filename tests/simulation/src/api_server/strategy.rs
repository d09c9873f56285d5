//! Fields that the server sets, preserves or rejects, whatever a client sends.

use serde_json::{Value, json};

use super::deletion::finalizers;
use super::id::Id;
use super::managed::Writer;
use super::status::Failure;

/// Sets the fields of a new object that the server controls.
pub(super) fn prepare(id: &Id, object: &mut Value) {
    object["apiVersion"] = id.resource.api_version().into();
    object["kind"] = id.resource.kind.into();
    let metadata = &mut object["metadata"];
    metadata["name"] = id.name.clone().into();
    if id.resource.namespaced {
        metadata["namespace"] = id.namespace.clone().into();
    }
    if let Some(metadata) = metadata.as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "managedFields",
        ] {
            metadata.remove(field);
        }
    }
    if id.resource.status
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
}

/// Sets the only default on which the controller depends.
pub(super) fn fill_in(id: &Id, object: &mut Value) {
    if id.resource.group == "apps"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.entry("replicas").or_insert_with(|| 1.into());
    }
}

/// Removes the fields that an apply to the object, or to its status, cannot change.
pub(super) fn restrict(id: &Id, writer: &Writer, config: &mut Value) {
    if writer.status {
        let metadata = json!({"name": id.name, "namespace": id.namespace});
        let status = config["status"].take();
        *config = json!({
            "apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": metadata,
        });
        if !status.is_null() {
            config["status"] = status;
        }
    } else if id.resource.status
        && let Some(config) = config.as_object_mut()
    {
        config.remove("status");
    }
}

pub(super) fn keep_system_fields(live: &Value, changed: &mut Value) {
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        changed["metadata"][field] = live["metadata"][field].clone();
    }
}

/// Whether `wanted` has a value for this field that differs from the object's.
pub(super) fn differs(live: &Value, wanted: &Value, field: &str) -> bool {
    let (live, wanted) = (&live["metadata"][field], &wanted["metadata"][field]);
    wanted.is_string() && wanted != live
}

pub(super) fn check_preconditions(id: &Id, live: &Value, wanted: &Value) -> Result<(), Failure> {
    if differs(live, wanted, "uid") {
        return Err(Failure::conflict(
            id,
            "Precondition failed: UID in precondition does not match UID in object meta",
        ));
    }
    check_version(id, live, wanted)
}

pub(super) fn check_version(id: &Id, live: &Value, wanted: &Value) -> Result<(), Failure> {
    if differs(live, wanted, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Failure::conflict(id, why));
    }
    Ok(())
}

/// The uid of an object is immutable, and no finalizers can be added while it is being deleted.
pub(super) fn check_metadata(live: &Value, changed: &Value, wanted: &Value) -> Result<(), Failure> {
    let is_new = |finalizer: &Value| !finalizers(live).any(|it| it == finalizer);
    let is_deleting = live["metadata"]["deletionTimestamp"].is_string();
    let mut causes = Vec::new();
    if is_deleting && finalizers(changed).any(is_new) {
        let why = "no new finalizers can be added if the object is being deleted";
        causes.push(("FieldValueForbidden", why, "metadata.finalizers"));
    }
    if differs(live, wanted, "uid") {
        causes.push(("FieldValueInvalid", "field is immutable", "metadata.uid"));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid_fields(&causes))
    }
}

pub(super) fn bump_generation(object: &mut Value) {
    let next = object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default()
        + 1;
    object["metadata"]["generation"] = next.into();
}
