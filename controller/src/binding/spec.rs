//! What tells the spec of a target from another.

use asya_shared::hash;
use asya_shared::inject::bound;
use asya_shared::names::annotation;
use serde_json::Value;

/// The spec of an object without what scales it, and without what we write (CONF-6, ROLL-5): a plain target's own
/// generation rises with each change of these. Some kinds have their fields beside `metadata`.
pub fn without_ours(object: &Value) -> Value {
    let mut spec = match &object["spec"] {
        Value::Null => besides(object),
        spec => spec.clone(),
    };
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("replicas");
    }
    if let Some(template) = spec.get_mut("template") {
        bound::without_ours(template);
    }
    release(&mut spec);
    spec
}

/// The same, as a hash.
pub fn hash(object: &Value) -> Box<str> {
    hash::of_value(&without_ours(object)).into()
}

fn besides(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("metadata");
        fields.remove("status");
    }
    object
}

/// Takes our annotation out of all annotations below; where there are no others, there are none.
fn release(value: &mut Value) {
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
    fields.values_mut().for_each(release);
}

#[cfg(test)]
mod tests;
