//! Renders the CRD as the text of `crds/asyncactors.yaml`, and, as JSON, the words that users see: reasons of
//! conditions, Events and reviews, and the values of STATUS. Also the corpus of specs that the CRD must accept or
//! reject.

pub mod corpus;
#[cfg(test)]
mod tests;

use asya_shared::api::State;
use asya_shared::names::annotation;
use asya_shared::reason::{
    EventReason, InjectionReason, MissingSidecar, PodEventReason, Reason, ReviewReason,
};
use serde_json::{Value, json};

/// Header of the generated file.
const HEADER: &str = "# Written by `cargo run -p asya-crds` from shared/src/api. Do not edit.\n";

/// Renders the CRD as YAML.
///
/// # Errors
/// If the CRD cannot be serialized as JSON or YAML.
pub fn yaml() -> Result<String, Box<dyn std::error::Error>> {
    // A JSON value sorts the keys of every object, so the file changes only with the API or the release.
    let mut crd = serde_json::to_value(asya_shared::api::crd()?)?;
    // An older operator must not overwrite the CRD of a newer release (SAFE-38).
    crd["metadata"]["annotations"][annotation::CRD_VERSION] = env!("CARGO_PKG_VERSION").into();
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&crd)?))
}

/// Renders the reasons of conditions: an array of objects with `name`, `meaning`, and `condition` and `remedy`, which
/// may be null.
///
/// # Errors
/// If they cannot be serialized as JSON.
pub fn reasons() -> serde_json::Result<String> {
    let described = |reason: &Reason| {
        json!({
            "name": reason.as_str(),
            "condition": reason.condition(),
            "meaning": reason.meaning(),
            "remedy": reason.remedy(),
        })
    };
    rendered(&Reason::ALL.iter().map(described).collect())
}

/// Renders the values of STATUS: an array of objects with `name`, `meaning`, and `remedy`, which may be null.
///
/// # Errors
/// If they cannot be serialized as JSON.
pub fn states() -> serde_json::Result<String> {
    let described = |state: &State| explained(state.as_str(), state.meaning(), state.remedy());
    rendered(&State::ALL.iter().map(described).collect())
}

/// Renders the reasons of Events: for each of `controller` and `webhook` an array of objects with `name`, `type` and
/// `meaning`, for the controller also with `action`.
///
/// # Errors
/// If they cannot be serialized as JSON.
pub fn events() -> serde_json::Result<String> {
    let of_controller = |reason: &EventReason| {
        json!({
            "name": reason.as_str(),
            "type": reason.type_().as_str(),
            "action": reason.action(),
            "meaning": reason.meaning(),
        })
    };
    let of_webhook = |reason: &PodEventReason| {
        json!({
            "name": reason.as_str(),
            "type": reason.type_().as_str(),
            "meaning": reason.meaning(),
        })
    };
    rendered(&json!({
        "controller": EventReason::ALL.iter().map(of_controller).collect::<Vec<_>>(),
        "webhook": PodEventReason::ALL.iter().map(of_webhook).collect::<Vec<_>>(),
    }))
}

/// Renders the reasons of the webhook's reviews as arrays of objects with `name`, `meaning`, and `remedy`, which may be
/// null: `pods` are those of decisions about pods, `missing` those of pods that the webhook has not reviewed, `others`
/// those of all other reviews.
///
/// # Errors
/// If they cannot be serialized as JSON.
pub fn reviews() -> serde_json::Result<String> {
    let of_pod =
        |reason: &InjectionReason| explained(reason.as_str(), reason.meaning(), reason.remedy());
    let missing =
        |reason: &MissingSidecar| explained(reason.as_str(), reason.meaning(), reason.remedy());
    let other = |reason: &ReviewReason| explained(reason.as_str(), reason.meaning(), None);
    rendered(&json!({
        "pods": InjectionReason::ALL.iter().map(of_pod).collect::<Vec<_>>(),
        "missing": MissingSidecar::ALL.iter().map(missing).collect::<Vec<_>>(),
        "others": ReviewReason::ALL.iter().map(other).collect::<Vec<_>>(),
    }))
}

fn explained(name: &str, meaning: &str, remedy: Option<&str>) -> Value {
    json!({"name": name, "meaning": meaning, "remedy": remedy})
}

fn rendered(value: &Value) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// The schema of the CRD with its rules adapted to kube's CEL evaluator: an optional `oldSelf` is an optional for the
/// API server, but the plain value or null for the evaluator.
///
/// # Errors
/// If the CRD cannot be serialized as JSON.
pub fn evaluable_schema() -> serde_json::Result<Value> {
    let crd = asya_shared::api::crd()?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let text = schema
        .to_string()
        .replace("oldSelf.hasValue()", "oldSelf != null")
        .replace("oldSelf.value()", "oldSelf");
    serde_json::from_str(&text)
}
