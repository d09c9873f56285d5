//! The chart's empty `ClusterRole` that owns the webhook configurations, so that they are garbage collected with it
//! (CFG-1, AVL-5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use asya_shared::admission::Anchor;
use asya_shared::names::manager;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::{Selector, Watch, WatchSink};
use crate::record::{AnchorRecord, Enqueue, Key, Projected};
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;

/// Cache of the anchor, filled by a watch.
pub(super) struct Anchors {
    client: Client,
    name: String,
    namespace: String,
    store: Arc<Kept>,
}

#[derive(Default)]
struct Kept {
    store: Store<AnchorRecord>,
    listed: AtomicBool,
}

impl Anchors {
    pub(super) fn new(client: Client, name: &str, namespace: &str) -> Self {
        Self {
            client,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            store: Arc::default(),
        }
    }

    pub(super) fn watch(&self, metrics: &Arc<Metrics>) -> Watch<AnchorRecord> {
        Watch {
            api: Api::all(self.client.clone()),
            scope: None,
            selector: Selector {
                fields: Some(format!("metadata.name={}", self.name).into()),
                ..Selector::default()
            },
            served: None,
            store: self.store.clone(),
            gate: Readiness::default().gate("webhook anchor"),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.store.listed.load(Ordering::Acquire)
    }

    /// Returns the anchor, or `None` if it is missing or being deleted. An anchor that Helm created first gets the
    /// operator's namespace as its owner; Argo CD would lose track of an object with an owner.
    ///
    /// # Errors
    /// If the API server refuses or fails.
    pub(super) async fn ensure(&self) -> Result<Option<Anchor>, String> {
        let Some(found) = self.store.store.get(&Key::new("", &self.name)) else {
            return Ok(None);
        };
        if found.metadata.deleting {
            return Ok(None);
        }
        if found.is_of_helm && !found.goes_with_namespace {
            self.tie()
                .await
                .map_err(|error| format!("ClusterRole {}: {error}", self.name))?;
        }
        Ok(Some(Anchor {
            name: self.name.clone(),
            uid: found.metadata.uid.to_string(),
        }))
    }

    async fn tie(&self) -> Result<(), kube::Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Some(uid) = namespaces.get(&self.namespace).await?.metadata.uid else {
            return Ok(());
        };
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": self.name,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": self.namespace, "uid": uid}],
            },
        });
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let params = PatchParams::apply(manager::ADMISSION).force();
        roles
            .patch_metadata(&self.name, &params, &Patch::Apply(&object))
            .await
            .map(drop)
    }
}

impl WatchSink<AnchorRecord> for Kept {
    fn relisting(&self, scope: &Scope) {
        self.store.relisting(scope);
    }

    fn show(&self, scope: &Scope, seen: &Projected<AnchorRecord>) -> Vec<Enqueue> {
        self.store.show(scope, seen)
    }

    fn removed(&self, scope: &Scope, seen: &Projected<AnchorRecord>) -> Vec<Enqueue> {
        self.store.removed(scope, seen)
    }

    /// The first list triggers a reconcile even if it is empty.
    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let gone = self.store.relisted(scope);
        let first = !self.listed.swap(true, Ordering::AcqRel);
        gone.into_iter()
            .chain(first.then_some(Enqueue::Everybody))
            .collect()
    }
}
