//! The CRD, applied by the leader at start: Helm never upgrades one, and refuses one that it has not made.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;
use tracing::{info, warn};

use asya_shared::names::{annotation, manager};

/// The CRD that this build was made with.
const MANIFEST: &str = include_str!("../../../crds/asyncactors.yaml");

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

/// What becomes of the CRD.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    /// It says all that ours says.
    Rest,
    /// It is of this newer release.
    Leave(&'a str),
    /// It differs from ours, or is missing.
    Apply,
}

/// Applies the CRD if the API server's differs from ours in anything that ours says and is of no newer release: an older
/// schema prunes fields of stored actors at their next write (SAFE-38). Never removes one.
///
/// # Errors
/// When the API server cannot be reached or refuses.
pub async fn apply(client: Client) -> Result<(), Error> {
    let mut ours = manifest()?;
    let name = "asyncactors.asya.sh";
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let live = api.get_opt(name).await?;
    let live = live
        .and_then(|live| serde_json::to_value(live).ok())
        .unwrap_or_default();
    match step(&live, &ours) {
        Step::Rest => return Ok(()),
        Step::Leave(version) => {
            warn!(
                crd = name,
                version,
                ours = version_of(&ours),
                annotation = annotation::CRD_VERSION,
                "the CRD is of a newer release and stays as it is: an older one would drop fields that are stored; to go back for good, remove the annotation"
            );
            return Ok(());
        }
        Step::Apply => {}
    }
    // What somebody else wrote since is judged anew.
    if let Some(version) = live.pointer("/metadata/resourceVersion") {
        ours["metadata"]["resourceVersion"] = version.clone();
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

/// Only a mark that is known to be of this release or an older one lets ours take the place of what is there.
fn step<'a>(live: &'a Value, ours: &Value) -> Step<'a> {
    let version = version_of(live);
    if contains(live, ours) {
        Step::Rest
    } else if version.is_empty() || release(version) <= release(version_of(ours)) {
        Step::Apply
    } else {
        Step::Leave(version)
    }
}

/// The release that a CRD is of; empty of one from before the mark.
fn version_of(crd: &Value) -> &str {
    let annotations = crd.pointer("/metadata/annotations");
    let version = annotations.and_then(|all| all.get(annotation::CRD_VERSION)?.as_str());
    version.unwrap_or_default()
}

/// A release as something that sorts: its numbers, then a pre-release before the release itself. One that cannot be read
/// comes last.
fn release(version: &str) -> (bool, Vec<u64>, bool, &str) {
    let version = version.split('+').next().unwrap_or_default();
    let (numbers, pre) = version.split_once('-').unwrap_or((version, ""));
    let numbers: Result<Vec<u64>, _> = numbers.split('.').map(str::parse).collect();
    (
        numbers.is_err(),
        numbers.unwrap_or_default(),
        pre.is_empty(),
        pre,
    )
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
    use super::{Step, contains, manifest, step, version_of};
    use asya_shared::names::annotation;
    use serde_json::{Value, json};

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

    fn crd(version: Option<&str>, fields: &[&str]) -> Value {
        let fields: Value = fields
            .iter()
            .map(|it| (*it, json!({"type": "string"})))
            .collect();
        let mut crd = json!({"metadata": {"annotations": {}}, "spec": {"properties": fields}});
        if let Some(version) = version {
            crd["metadata"]["annotations"][annotation::CRD_VERSION] = json!(version);
        }
        crd
    }

    /// SAFE-38
    #[test]
    fn older_operator_never_takes_fields_out_of_the_crd_of_a_newer_one() {
        let ours = crd(Some("0.10.0"), &["a", "b"]);
        for (live, more, wanted) in [
            (None, "", Step::Apply),
            (Some("0.9.9"), "", Step::Apply),
            (Some("0.10.0-rc.1"), "", Step::Apply),
            (Some("0.10.0"), "", Step::Apply),
            (Some("0.10.0+build.7"), "", Step::Apply),
            (Some("0.10.1"), "new", Step::Leave("0.10.1")),
            (Some("0.11.0-rc.1"), "new", Step::Leave("0.11.0-rc.1")),
            (Some("1.0.0"), "new", Step::Leave("1.0.0")),
            (Some("next"), "new", Step::Leave("next")),
        ] {
            let live = crd(live, &["a", more]);
            assert_eq!(step(&live, &ours), wanted, "{live}");
        }
        assert_eq!(step(&Value::Null, &ours), Step::Apply);
        assert_eq!(step(&ours, &ours), Step::Rest);
        // One whose release comes later, and says all that ours says, but for its mark.
        let newer = crd(Some("0.11.0"), &["a", "b", "c"]);
        assert_eq!(step(&newer, &ours), Step::Leave("0.11.0"));
        assert_eq!(version_of(&manifest().unwrap()), env!("CARGO_PKG_VERSION"));
    }
}
