//! Comparison of target specs.

use asya_shared::hash;
use asya_shared::inject::bound;
use asya_shared::names::annotation;
use serde_json::Value;

/// The spec of an object without replicas and without the fields that the operator writes, because these bump the
/// generation of a plain target as well (CONF-6, ROLL-5). Some kinds have their fields next to `metadata` instead of in
/// `spec`.
pub fn comparable(object: &Value) -> Value {
    let mut spec = match &object["spec"] {
        Value::Null => fields_outside_metadata(object),
        spec => spec.clone(),
    };
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("replicas");
    }
    if let Some(template) = spec.get_mut("template") {
        bound::strip_injected(template);
    }
    remove_roll_annotation(&mut spec);
    spec
}

/// Hash of [`comparable`].
pub fn hash(object: &Value) -> Box<str> {
    hash::of_value(&comparable(object)).into()
}

fn fields_outside_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    object
}

/// Removes the rollout annotation from every nested `annotations` map, and the map itself if it becomes empty.
fn remove_roll_annotation(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        return;
    };
    let annotations = fields.get_mut("annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.remove(annotation::ROLL);
        if annotations.is_empty() {
            fields.remove("annotations");
        }
    }
    fields.values_mut().for_each(remove_roll_annotation);
}

#[cfg(test)]
mod tests;
