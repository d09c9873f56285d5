//! The CRD, applied by the leader at start: Helm never upgrades one, and refuses one that it has not made.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;
use tracing::info;

use asya_shared::names::manager;

/// The CRD that this build was made with.
const MANIFEST: &str = include_str!("../../crds/asyncactors.yaml");

/// Why the CRD could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The embedded manifest is broken: a defect of the build.
    #[error("the embedded CRD is not YAML: {0}")]
    Manifest(String),
    /// The API server fails or refuses.
    #[error("CRD asyncactors.asya.sh: {0}")]
    Api(#[from] kube::Error),
}

/// Applies the CRD if the API server's differs from ours in anything that ours says. Never removes one.
///
/// # Errors
/// When the API server cannot be reached or refuses.
pub async fn apply(client: Client) -> Result<(), Error> {
    let ours = manifest()?;
    let name = ours
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let live = api.get_opt(name).await?;
    let live = live
        .and_then(|live| serde_json::to_value(live).ok())
        .unwrap_or_default();
    if contains(&live, &ours) {
        return Ok(());
    }
    api.patch(
        name,
        &PatchParams::apply(manager::CRD).force(),
        &Patch::Apply(&ours),
    )
    .await?;
    info!(crd = name, "CRD applied");
    Ok(())
}

fn manifest() -> Result<Value, Error> {
    serde_saphyr::from_str(MANIFEST).map_err(|error| Error::Manifest(error.to_string()))
}

/// Whether `live` says everything that `ours` says; defaults that the server added do not count.
fn contains(live: &Value, ours: &Value) -> bool {
    match (live, ours) {
        (Value::Object(live), Value::Object(ours)) => {
            ours.iter().all(|(key, ours)| match live.get(key) {
                Some(live) => contains(live, ours),
                // The typed copy of the live object leaves out what is empty or false.
                None => {
                    ours.is_null()
                        || *ours == Value::Bool(false)
                        || is_empty(ours)
                        || matches!(key.as_str(), "apiVersion" | "kind")
                }
            })
        }
        (Value::Array(live), Value::Array(ours)) => {
            live.len() == ours.len()
                && live
                    .iter()
                    .zip(ours)
                    .all(|(live, ours)| contains(live, ours))
        }
        (live, ours) => {
            live == ours
                || live
                    .as_f64()
                    .zip(ours.as_f64())
                    .is_some_and(|(live, ours)| live.total_cmp(&ours).is_eq())
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::{contains, manifest};
    use serde_json::json;

    #[test]
    fn embedded_manifest_is_the_crd_of_async_actors() {
        assert_eq!(
            manifest().unwrap()["metadata"]["name"],
            "asyncactors.asya.sh"
        );
    }

    /// D10
    #[test]
    fn crd_is_written_only_when_something_of_ours_is_missing() {
        let ours = json!({"spec": {"group": "asya.sh", "versions": [{"name": "v1alpha1", "schema": {"maximum": 5}}]}});
        let mut live = ours.clone();
        live["spec"]["conversion"] = json!({"strategy": "None"});
        live["spec"]["versions"][0]["schema"]["maximum"] = json!(5.0);
        assert!(contains(&live, &ours));
        live["spec"]["versions"][0]["schema"]["maximum"] = json!(6);
        assert!(!contains(&live, &ours));
        assert!(!contains(&json!(null), &ours));
    }
}
