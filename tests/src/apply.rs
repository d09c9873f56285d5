//! Creates objects as `kubectl apply` would, without a process. kubectl takes several times the processor time of the
//! API server's work, and makes it build its `OpenAPI` documents; on a machine that is never idle, all scenarios wait.

use std::collections::HashMap;

use http::Uri;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::discovery::Scope;
use kube::core::{GroupVersionKind, Request, TypeMeta};
use kube::{Api, Client, discovery};
use serde_json::{Value, json};

use crate::error::{Error, Result};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const FIELD_MANAGER: &str = "kubectl-client-side-apply";

/// Creates the objects of manifests as `kubectl apply` would, in this namespace unless a manifest names another.
/// Returns the manifests that are left to kubectl, because their objects exist or their kinds are not served.
///
/// # Errors
/// When a manifest is rejected: reported in kubectl's words, after all others were tried. When the API server cannot be
/// reached.
pub(crate) async fn create_all(
    client: &Client,
    namespace: &str,
    manifests: &[Value],
) -> Result<Vec<Value>> {
    let mut creator = Creator {
        client,
        namespace,
        kinds: HashMap::new(),
    };
    let mut left = Vec::new();
    let mut refusals = Vec::new();
    for manifest in manifests {
        match creator.create(manifest).await? {
            Outcome::Created => {}
            Outcome::Refused(reason) => refusals.push(reason),
            Outcome::LeftToKubectl => left.push(manifest.clone()),
        }
    }
    if refusals.is_empty() {
        return Ok(left);
    }
    Err(Error::Other(refusals.join("\n")))
}

enum Outcome {
    Created,
    Refused(String),
    LeftToKubectl,
}

struct Creator<'a> {
    client: &'a Client,
    namespace: &'a str,
    kinds: HashMap<GroupVersionKind, (ApiResource, Scope)>,
}

impl Creator<'_> {
    async fn create(&mut self, manifest: &Value) -> Result<Outcome> {
        let Some(api) = self.api(manifest).await else {
            return Ok(Outcome::LeftToKubectl);
        };
        let Some(name) = manifest["metadata"]["name"].as_str() else {
            return Ok(Outcome::LeftToKubectl);
        };
        if api.get_metadata_opt(name).await?.is_some() {
            return Ok(Outcome::LeftToKubectl);
        }
        let body = object(manifest, api.namespace()).to_string();
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let request = Request::new(api.resource_url()).create(&params, body.into());
        let mut request = request.map_err(Error::other)?;
        // kubectl's default, for which `PostParams` has no field.
        let uri = format!("{}&fieldValidation=Strict", request.uri());
        *request.uri_mut() = uri.parse::<Uri>().map_err(Error::other)?;
        match self.client.request::<Value>(request).await {
            Ok(_) => Ok(Outcome::Created),
            Err(kube::Error::Api(status)) => Ok(Outcome::Refused(format!(
                "Error from server ({}): error when creating {name}: {}",
                status.reason, status.message
            ))),
            Err(error) => Err(error.into()),
        }
    }

    async fn api(&mut self, manifest: &Value) -> Option<Api<DynamicObject>> {
        let types = TypeMeta {
            api_version: manifest["apiVersion"].as_str()?.to_owned(),
            kind: manifest["kind"].as_str()?.to_owned(),
        };
        let kind = GroupVersionKind::try_from(types).ok()?;
        if !self.kinds.contains_key(&kind) {
            let (resource, capabilities) = discovery::pinned_kind(self.client, &kind).await.ok()?;
            let found = (resource, capabilities.scope);
            self.kinds.insert(kind.clone(), found);
        }
        let (resource, scope) = self.kinds.get(&kind)?;
        let namespace = manifest["metadata"]["namespace"].as_str();
        Some(match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), resource),
            Scope::Namespaced => {
                let namespace = namespace.unwrap_or(self.namespace);
                Api::namespaced_with(self.client.clone(), namespace, resource)
            }
        })
    }
}

/// The object of a manifest, with the annotation that kubectl adds: a later `kubectl apply` reads what was last
/// applied.
fn object(manifest: &Value, namespace: Option<&str>) -> Value {
    let mut object = manifest.clone();
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let annotations = &mut object["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = json!({});
    }
    let applied = format!("{object}\n");
    object["metadata"]["annotations"][LAST_APPLIED] = json!(applied);
    object
}
