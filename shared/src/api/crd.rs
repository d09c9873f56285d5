//! The CRD as published.

use kube::CustomResourceExt;
use serde_json::Value;

use super::AsyncActor;

/// Returns the CRD that kube derives from the types, with the line breaks of doc comments removed.
///
/// # Errors
/// When the CRD cannot be written as JSON.
pub fn crd() -> Result<Value, serde_json::Error> {
    let mut crd = serde_json::to_value(AsyncActor::crd())?;
    publish(&mut crd);
    Ok(crd)
}

fn publish(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    // Doc comments break lines for the editor, `kubectl explain` breaks them for the terminal.
                    Value::String(text) if key == "description" => *text = text.replace('\n', " "),
                    other => publish(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(publish),
        _ => {}
    }
}
