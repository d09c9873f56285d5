//! The CRD, applied by the leader at startup: Helm never upgrades a CRD, and rejects one that it did not create.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;
use tracing::{info, warn};

use asya_shared::json::is_subset;
use asya_shared::names::{annotation, manager};

/// The CRD of this build.
const MANIFEST: &str = include_str!("../../../crds/asyncactors.yaml");

/// Why the CRD could not be updated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The embedded manifest is broken, which is a build defect.
    #[error("the embedded CRD is not YAML: {0}")]
    Manifest(String),
    /// The API server failed or rejected the write.
    #[error("CRD asyncactors.asya.sh: {0}")]
    Api(#[from] kube::Error),
}

/// Action to take on the existing CRD.
#[derive(Debug, PartialEq, Eq)]
enum CrdStep<'a> {
    /// It already contains everything in the embedded one.
    Unchanged,
    /// It comes from this newer version.
    KeepNewer(&'a str),
    /// It differs from the embedded one, or is missing.
    Apply,
}

/// Applies the CRD if the existing one lacks anything in the embedded one and does not come from a newer version: an
/// older schema would prune fields of stored actors at their next write (SAFE-38). Never deletes it.
///
/// # Errors
/// If the API server is unreachable or rejects the write.
pub async fn apply(client: Client) -> Result<(), Error> {
    let mut embedded = manifest()?;
    let name = "asyncactors.asya.sh";
    let api: Api<CustomResourceDefinition> = Api::all(client);
    let existing = api.get_opt(name).await?;
    let existing = existing
        .and_then(|existing| serde_json::to_value(existing).ok())
        .unwrap_or_default();
    match decide(&existing, &embedded) {
        CrdStep::Unchanged => return Ok(()),
        CrdStep::KeepNewer(version) => {
            warn!(
                crd = name,
                version,
                ours = version_of(&embedded),
                annotation = annotation::CRD_VERSION,
                "the CRD is from a newer version and is left unchanged, because an older one would prune stored \
                 fields; to go back for good, remove the annotation"
            );
            return Ok(());
        }
        CrdStep::Apply => {}
    }
    // Pin the version: a concurrent write must be compared again, not overwritten.
    if let Some(version) = existing.pointer("/metadata/resourceVersion") {
        embedded["metadata"]["resourceVersion"] = version.clone();
    }
    api.patch(
        name,
        &PatchParams::apply(manager::CRD).force(),
        &Patch::Apply(&embedded),
    )
    .await?;
    info!(crd = name, "CRD applied");
    Ok(())
}

/// The embedded CRD replaces the existing one only if that comes from this version or an older one (which may lack the
/// annotation).
fn decide<'a>(existing: &'a Value, embedded: &Value) -> CrdStep<'a> {
    let version = version_of(existing);
    if contains(existing, embedded) {
        CrdStep::Unchanged
    } else if version.is_empty()
        || ReleaseVersion::parse(version) <= ReleaseVersion::parse(version_of(embedded))
    {
        CrdStep::Apply
    } else {
        CrdStep::KeepNewer(version)
    }
}

/// The version of the operator that wrote a CRD; empty if it predates the annotation.
fn version_of(crd: &Value) -> &str {
    let annotations = crd.pointer("/metadata/annotations");
    let version = annotations.and_then(|all| all.get(annotation::CRD_VERSION)?.as_str());
    version.unwrap_or_default()
}

/// An identifier of a pre-release: numbers sort by their value, before words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum PreRelease<'a> {
    Number(u64),
    Word(&'a str),
}

/// A version of the operator, in the order of releases. Not `semver`'s: a version that cannot be parsed has a place,
/// too.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ReleaseVersion<'a> {
    /// Sorts last.
    is_unparsable: bool,
    numbers: Vec<u64>,
    /// Sorts after its pre-releases.
    is_final: bool,
    pre_release: Vec<PreRelease<'a>>,
}

impl<'a> ReleaseVersion<'a> {
    fn parse(version: &'a str) -> Self {
        let version = version.split('+').next().unwrap_or_default();
        let (numbers, pre_release) = version.split_once('-').unwrap_or((version, ""));
        let numbers: Result<Vec<u64>, _> = numbers.split('.').map(str::parse).collect();
        let identifier = |text| str::parse(text).map_or(PreRelease::Word(text), PreRelease::Number);
        Self {
            is_unparsable: numbers.is_err(),
            numbers: numbers.unwrap_or_default(),
            is_final: pre_release.is_empty(),
            pre_release: pre_release.split('.').map(identifier).collect(),
        }
    }
}

fn manifest() -> Result<Value, Error> {
    serde_saphyr::from_str(MANIFEST).map_err(|error| Error::Manifest(error.to_string()))
}

/// Whether `existing` contains everything in `embedded`; defaults that the server added are ignored.
fn contains(existing: &Value, embedded: &Value) -> bool {
    is_subset(embedded, existing, &|key, embedded, existing| {
        let Some(existing) = existing else {
            // The typed copy of the existing object omits empty and false values.
            return Some(
                embedded.is_null()
                    || *embedded == Value::Bool(false)
                    || is_empty(embedded)
                    || matches!(key, "apiVersion" | "kind"),
            );
        };
        let numbers = existing.as_f64().zip(embedded.as_f64());
        numbers.map(|(number, other)| existing == embedded || number.total_cmp(&other).is_eq())
    })
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asya_shared::names::annotation;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::{CrdStep, ReleaseVersion, apply, contains, decide, manifest, version_of};

    #[test]
    fn embedded_manifest_is_the_crd_of_async_actors() {
        assert_eq!(
            manifest().unwrap()["metadata"]["name"],
            "asyncactors.asya.sh"
        );
    }

    /// D10
    #[test]
    fn crd_is_written_only_if_the_live_one_lacks_something() {
        let embedded = json!({"spec": {"group": "asya.sh", "versions": [{"name": "v1alpha1", "schema": {"maximum": 5}}]}});
        let mut existing = embedded.clone();
        existing["spec"]["conversion"] = json!({"strategy": "None"});
        existing["spec"]["versions"][0]["schema"]["maximum"] = json!(5.0);
        assert!(contains(&existing, &embedded));
        existing["spec"]["versions"][0]["schema"]["maximum"] = json!(6);
        assert!(!contains(&existing, &embedded));
        assert!(!contains(&json!(null), &embedded));
    }

    fn crd(version: Option<&str>, fields: &[&str]) -> Value {
        let fields: Value = fields
            .iter()
            .map(|name| (*name, json!({"type": "string"})))
            .collect();
        let mut crd = json!({"metadata": {"annotations": {}}, "spec": {"properties": fields}});
        if let Some(version) = version {
            crd["metadata"]["annotations"][annotation::CRD_VERSION] = json!(version);
        }
        crd
    }

    /// SAFE-38
    #[tokio::test]
    async fn crd_of_a_newer_release_is_not_overwritten() {
        for (version, writes) in [("99.0.0", 0), ("0.0.1", 1)] {
            let mut existing = manifest().unwrap();
            existing["metadata"]["annotations"][annotation::CRD_VERSION] = json!(version);
            existing["metadata"]["labels"]["differs"] = json!("yes");
            existing["spec"]["names"]["shortNames"] = json!([]);
            let written = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&written);
            let service = tower::service_fn(move |request: http::Request<Body>| {
                if request.method() != http::Method::GET {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let body = Body::from(existing.to_string().into_bytes());
                std::future::ready(Ok::<_, tower::BoxError>(http::Response::new(body)))
            });
            apply(Client::new(service, "default")).await.unwrap();
            assert_eq!(written.load(Ordering::SeqCst), writes, "{version}");
        }
    }

    /// SAFE-38
    #[test]
    fn older_operator_never_prunes_the_crd_of_a_newer_one() {
        let embedded = crd(Some("0.10.0"), &["a", "b"]);
        for (existing, more, expected) in [
            (None, "", CrdStep::Apply),
            (Some("0.9.9"), "", CrdStep::Apply),
            (Some("0.10.0-rc.1"), "", CrdStep::Apply),
            (Some("0.10.0"), "", CrdStep::Apply),
            (Some("0.10.0+build.7"), "", CrdStep::Apply),
            (Some("0.10.1"), "new", CrdStep::KeepNewer("0.10.1")),
            (
                Some("0.11.0-rc.1"),
                "new",
                CrdStep::KeepNewer("0.11.0-rc.1"),
            ),
            (Some("1.0.0"), "new", CrdStep::KeepNewer("1.0.0")),
            (Some("next"), "new", CrdStep::KeepNewer("next")),
        ] {
            let existing = crd(existing, &["a", more]);
            assert_eq!(decide(&existing, &embedded), expected, "{existing}");
        }
        assert!(ReleaseVersion::parse("0.11.0-rc.9") < ReleaseVersion::parse("0.11.0-rc.10"));
        assert_eq!(decide(&Value::Null, &embedded), CrdStep::Apply);
        assert_eq!(decide(&embedded, &embedded), CrdStep::Unchanged);
        // A newer version that contains everything in the embedded one except the annotation.
        let newer = crd(Some("0.11.0"), &["a", "b", "c"]);
        assert_eq!(decide(&newer, &embedded), CrdStep::KeepNewer("0.11.0"));
        assert_eq!(version_of(&manifest().unwrap()), env!("CARGO_PKG_VERSION"));
    }
}
