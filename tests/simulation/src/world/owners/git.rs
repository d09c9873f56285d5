//! Argo CD with self-heal (SIM-7): syncs Deployments with committed manifests, and prunes the others.

use std::sync::{Arc, Weak};

use asya_owners::argo::{Argo, Sync};
use asya_owners::error::Result;
use asya_owners::{Kind, Reconciler, RecordingClient};
use serde_json::Value;

use super::World;
use crate::api_server::id::Id;
use crate::api_server::resources;

/// Label of objects created by Argo CD.
pub const TRACKED: &str = "argocd.argoproj.io/instance";

/// Argo CD for one namespace.
pub struct GitOps {
    world: Weak<World>,
    namespace: &'static str,
    how: Sync,
}

impl GitOps {
    pub fn new(world: &Arc<World>, namespace: &'static str, how: Sync) -> Self {
        Self {
            world: Arc::downgrade(world),
            namespace,
            how,
        }
    }

    /// The committed manifest of a Deployment.
    fn manifest(&self, name: &str) -> Option<Value> {
        let id = Id::new(&resources::DEPLOYMENTS, self.namespace, name);
        let world = self.world.upgrade()?;
        let manifests = world.owners.manifests.lock();
        manifests.get(&id).cloned()
    }

    fn manifests(&self) -> Vec<Value> {
        let Some(world) = self.world.upgrade() else {
            return Vec::new();
        };
        let manifests = world.owners.manifests.lock();
        let own = manifests
            .iter()
            .filter(|(id, _)| id.namespace == self.namespace);
        own.map(|(_, manifest)| manifest.clone()).collect()
    }
}

impl Reconciler for GitOps {
    fn manager(&self) -> &'static str {
        "argocd-controller"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![Kind::DEPLOYMENT]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for manifest in self.manifests() {
            Argo::new(manifest, self.how).reconcile(client).await?;
        }
        for live in client.list(Kind::DEPLOYMENT).await? {
            let name = live["metadata"]["name"].as_str().unwrap_or_default();
            let is_tracked = live["metadata"]["labels"][TRACKED].is_string();
            if is_tracked && self.manifest(name).is_none() {
                client.delete(Kind::DEPLOYMENT, &live).await?;
            }
        }
        Ok(())
    }
}
