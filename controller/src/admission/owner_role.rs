//! The chart's empty `ClusterRole` that owns the webhook configurations, so that they are garbage collected with it
//! (CFG-1, AVL-5).

use std::sync::Arc;

use asya_shared::admission::OwnerRole;
use asya_shared::names::manager;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::watched_store::WatchedStore;
use crate::cluster::watch::{Selector, Watch};
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Key, OwnerRoleRecord};
use crate::telemetry::health::Readiness;
use crate::telemetry::metrics::Metrics;

/// Cache of the owner `ClusterRole`, filled by a watch.
pub(super) struct OwnerRoleCache {
    client: Client,
    name: String,
    namespace: String,
    store: Arc<WatchedStore<OwnerRoleRecord>>,
}

impl OwnerRoleCache {
    pub(super) fn new(client: Client, name: &str, namespace: &str) -> Self {
        Self {
            client,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            store: Arc::default(),
        }
    }

    pub(super) fn watch(&self, metrics: &Arc<Metrics>) -> Watch<OwnerRoleRecord> {
        Watch {
            api: Api::all(self.client.clone()),
            scope: WatchScope::Cluster,
            selector: Selector {
                fields: Some(format!("metadata.name={}", self.name).into()),
                ..Selector::default()
            },
            served: None,
            sink: self.store.clone(),
            check: Readiness::default().check("owner ClusterRole of the webhook"),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// Returns the owner `ClusterRole`, or `None` if it is missing or being deleted. A `ClusterRole` that Helm created
    /// first gets the operator's namespace as its owner; Argo CD would lose track of an object with an owner.
    ///
    /// # Errors
    /// If the API server rejects the request or fails.
    pub(super) async fn ensure(&self) -> Result<Option<OwnerRole>, String> {
        let Some(owner_role) = self.store.store.get(&Key::new("", &self.name)) else {
            return Ok(None);
        };
        if owner_role.metadata.deleting {
            return Ok(None);
        }
        if owner_role.managed_by_helm && !owner_role.owned_by_namespace {
            self.set_owner()
                .await
                .map_err(|error| format!("ClusterRole {}: {error}", self.name))?;
        }
        Ok(Some(OwnerRole {
            name: self.name.clone(),
            uid: owner_role.metadata.uid.to_string(),
        }))
    }

    async fn set_owner(&self) -> Result<(), kube::Error> {
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
