//! CRDs of the systems that actors bind to.
//!
//! The original CRDs are read from the folder named by [`FOLDER_VARIABLE`], if it contains them. Otherwise our own
//! minimal CRDs are used, with the same group, version, names and subresources, and only the fields that are used.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Kind;
use crate::cluster::Cluster;
use crate::crds::is_established;
use crate::error::{Context, Error, Result};
use crate::eventually::eventually;

/// Names the folder with the original CRDs, one file `GROUP_PLURAL.yaml` each.
pub const FOLDER_VARIABLE: &str = "ASYA_TEST_CRDS";

/// Our minimal CRDs, by the file name that the original would have.
const OWN: [(&str, &str); 14] = [
    (
        "kaito.sh_workspaces",
        include_str!("crds/kaito.sh_workspaces.yaml"),
    ),
    (
        "kaito.sh_inferencesets",
        include_str!("crds/kaito.sh_inferencesets.yaml"),
    ),
    (
        "serving.kserve.io_inferenceservices",
        include_str!("crds/serving.kserve.io_inferenceservices.yaml"),
    ),
    (
        "serving.kserve.io_llminferenceservices",
        include_str!("crds/serving.kserve.io_llminferenceservices.yaml"),
    ),
    (
        "ray.io_rayclusters",
        include_str!("crds/ray.io_rayclusters.yaml"),
    ),
    (
        "ray.io_rayservices",
        include_str!("crds/ray.io_rayservices.yaml"),
    ),
    ("ray.io_rayjobs", include_str!("crds/ray.io_rayjobs.yaml")),
    (
        "serving.knative.dev_services",
        include_str!("crds/serving.knative.dev_services.yaml"),
    ),
    (
        "serving.knative.dev_configurations",
        include_str!("crds/serving.knative.dev_configurations.yaml"),
    ),
    (
        "serving.knative.dev_revisions",
        include_str!("crds/serving.knative.dev_revisions.yaml"),
    ),
    (
        "leaderworkerset.x-k8s.io_leaderworkersets",
        include_str!("crds/leaderworkerset.x-k8s.io_leaderworkersets.yaml"),
    ),
    (
        "machinelearning.seldon.io_seldondeployments",
        include_str!("crds/machinelearning.seldon.io_seldondeployments.yaml"),
    ),
    (
        "mlops.seldon.io_servers",
        include_str!("crds/mlops.seldon.io_servers.yaml"),
    ),
    (
        "serving.yatai.ai_bentodeployments",
        include_str!("crds/serving.yatai.ai_bentodeployments.yaml"),
    ),
];

/// Installs the CRDs of these kinds, and waits until they are served.
///
/// # Errors
/// When a CRD cannot be read, or the API server rejects it.
pub async fn install(cluster: &Cluster, kinds: &[Kind]) -> Result<()> {
    // Scenarios share a cluster, and a forced apply of megabytes is expensive, so install each CRD once.
    static DONE: Mutex<Vec<(String, Kind)>> = Mutex::const_new(Vec::new());
    // A folder is reused once its cluster has stopped.
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let cluster_id = namespaces.get_metadata("kube-system").await?.metadata.uid;
    let cluster_id = cluster_id.unwrap_or_default();
    let mut done = DONE.lock().await;
    for kind in kinds {
        let key = (cluster_id.clone(), *kind);
        if !done.contains(&key) {
            install_one(cluster, *kind).await?;
            done.push(key);
        }
    }
    Ok(())
}

async fn install_one(cluster: &Cluster, kind: Kind) -> Result<()> {
    let crd = read(kind)?;
    let name = format!("{}.{}", kind.plural, kind.group);
    let api = Api::<CustomResourceDefinition>::all(cluster.client());
    let params = PatchParams::apply("asya-tests").force();
    api.patch(&name, &params, &Patch::Apply(&crd)).await?;
    let objects = Api::<DynamicObject>::all_with(cluster.client(), &kind.resource());
    // The original CRDs are megabytes in size, and the API server first builds its OpenAPI documents from them.
    let within = Duration::from_mins(2);
    eventually(format_args!("CRD {name} is served"), within, async || {
        is_established(&api, &name).await?;
        // Established is reported before the kind is served.
        objects
            .list_metadata(&ListParams::default().limit(1))
            .await?;
        Ok(())
    })
    .await
}

/// The original CRD of a kind, otherwise ours.
fn read(kind: Kind) -> Result<Value> {
    let name = format!("{}_{}", kind.group, kind.plural);
    let folder = std::env::var_os(FOLDER_VARIABLE).filter(|it| !it.is_empty());
    let file = folder.map(|it| PathBuf::from(it).join(format!("{name}.yaml")));
    let text = if let Some(file) = file.filter(|it| it.exists()) {
        std::fs::read_to_string(&file).context(format_args!("read {}", file.display()))?
    } else {
        let own = OWN.iter().find(|(own, _)| *own == name);
        let own = own.ok_or_else(|| Error::Other(format!("no CRD {name}")))?;
        own.1.to_owned()
    };
    let mut crd: Value = serde_saphyr::from_str(&text).map_err(Error::other)?;
    // No conversion webhooks run here.
    crd["spec"]["conversion"] = json!({"strategy": "None"});
    Ok(crd)
}

#[cfg(test)]
mod tests;
