//! The CRD as the text of `crds/asyncactors.yaml`, and the specs that it must accept and refuse.

pub mod corpus;
#[cfg(test)]
mod tests;

use asya_shared::names::annotation;

/// First lines of the file.
const HEADER: &str = "# Written by `cargo run -p asya-crds` from shared/src/api. Do not edit.\n";

/// The CRD as YAML.
///
/// # Errors
/// When the CRD cannot be written as JSON or YAML.
pub fn yaml() -> Result<String, Box<dyn std::error::Error>> {
    // A JSON value sorts the keys of every object, so that the file changes only where the API or the release does.
    let mut crd = serde_json::to_value(asya_shared::api::crd()?)?;
    // By this mark an older operator leaves the CRD of a newer one alone (SAFE-38).
    crd["metadata"]["annotations"][annotation::CRD_VERSION] = env!("CARGO_PKG_VERSION").into();
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&crd)?))
}
