//! The CRD as the text of `crds/asyncactors.yaml`, and specs that it must accept or reject; the reasons of conditions
//! as JSON.

pub mod corpus;
#[cfg(test)]
mod tests;

use asya_shared::names::annotation;
use asya_shared::reason::Reason;
use serde_json::{Value, json};

/// Header of the generated file.
const HEADER: &str = "# Written by `cargo run -p asya-crds` from shared/src/api. Do not edit.\n";

/// Renders the CRD as YAML.
///
/// # Errors
/// When the CRD cannot be serialised as JSON or YAML.
pub fn yaml() -> Result<String, Box<dyn std::error::Error>> {
    // A JSON value sorts the keys of every object, so that the file only changes with the API or the release.
    let mut crd = serde_json::to_value(asya_shared::api::crd()?)?;
    // An older operator does not overwrite the CRD of a newer release (SAFE-38).
    crd["metadata"]["annotations"][annotation::CRD_VERSION] = env!("CARGO_PKG_VERSION").into();
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&crd)?))
}

/// Renders the reasons of conditions: an array of objects with `name`, `cause`, and `condition` and `remedy`, which may
/// be null.
///
/// # Errors
/// When they cannot be serialised as JSON.
pub fn reasons() -> serde_json::Result<String> {
    let described = |reason: &Reason| {
        json!({
            "name": reason.as_str(),
            "condition": reason.condition(),
            "cause": reason.cause(),
            "remedy": reason.remedy(),
        })
    };
    let reasons: Vec<Value> = Reason::ALL.iter().map(described).collect();
    Ok(serde_json::to_string_pretty(&reasons)? + "\n")
}

/// The schema of the CRD, with its rules as kube's evaluator of CEL reads them: an optional `oldSelf` is an optional
/// for the API server, but the plain value or null for the evaluator.
///
/// # Errors
/// When the CRD cannot be serialised as JSON.
pub fn evaluable_schema() -> serde_json::Result<Value> {
    let crd = asya_shared::api::crd()?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let text = schema
        .to_string()
        .replace("oldSelf.hasValue()", "oldSelf != null")
        .replace("oldSelf.value()", "oldSelf");
    serde_json::from_str(&text)
}
