//! The CRD as the text of `crds/asyncactors.yaml`.

use asya_shared::api::AsyncActor;
use kube::CustomResourceExt;
use serde_json::Value;

#[cfg(test)]
mod tests;

/// First lines of the file.
const HEADER: &str = "# Written by `cargo run -p asya-crds` from shared/src/api. Do not edit.\n";

/// The CRD as YAML, with sorted keys.
///
/// # Errors
/// When the CRD cannot be written as JSON or YAML.
pub fn yaml() -> Result<String, Box<dyn std::error::Error>> {
    // `Value` sorts the keys of every object, so that the file changes only where the API does.
    let mut crd = serde_json::to_value(AsyncActor::crd())?;
    join_lines(&mut crd);
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&crd)?))
}

/// Doc comments break their lines for the editor; `kubectl explain` breaks them for the terminal.
fn join_lines(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::String(text) if key == "description" => *text = text.replace('\n', " "),
                    other => join_lines(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}
