//! Workloads of both kinds at the API server: what stands there, and our writes.

use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use asya_shared::names::manager;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::objects::{Objects, WriteError};
use crate::record::{Key, OfKind, WorkloadRecord};

/// Reads and writes workloads.
pub struct Workloads {
    /// Deployments.
    pub deployments: Objects<OfKind<Deployment>>,
    /// `StatefulSet`s.
    pub stateful_sets: Objects<OfKind<StatefulSet>>,
}

impl Workloads {
    /// Reads and writes by `client`.
    pub fn new(client: &Client) -> Self {
        Self {
            deployments: Objects::new(client.clone()),
            stateful_sets: Objects::new(client.clone()),
        }
    }

    /// What the watches show under a name.
    pub fn seen(&self, kind: WorkloadKind, key: &Key) -> Option<Arc<WorkloadRecord>> {
        match kind {
            WorkloadKind::Deployment => of_kind(self.deployments.store.get(key)),
            WorkloadKind::StatefulSet => of_kind(self.stateful_sets.store.get(key)),
        }
    }

    /// What stands under a name, also where the watches, which see our labels only, show nothing.
    ///
    /// # Errors
    /// When the API server does not tell.
    pub async fn live(
        &self,
        kind: WorkloadKind,
        key: &Key,
    ) -> Result<Option<Arc<WorkloadRecord>>, kube::Error> {
        Ok(match kind {
            WorkloadKind::Deployment => of_kind(self.deployments.live(key).await?),
            WorkloadKind::StatefulSet => of_kind(self.stateful_sets.live(key).await?),
        })
    }

    /// Makes the workload what `object` says.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn apply(
        &self,
        kind: WorkloadKind,
        key: &Key,
        object: &Value,
    ) -> Result<Arc<WorkloadRecord>, kube::Error> {
        let params = PatchParams::apply(manager::WORKLOAD).force();
        self.patch(kind, key, &params, &Patch::Apply(object)).await
    }

    /// Gives the live number of replicas an owner of its own, so that it stays when ours goes: a field that
    /// nobody owns falls back to 1.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn hand_over_replicas(&self, workload: &WorkloadRecord) -> Result<(), kube::Error> {
        let key = &workload.metadata.key;
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": workload.kind,
            "metadata": {"name": &*key.name, "namespace": &*key.namespace, "uid": &*workload.metadata.uid},
            "spec": {"replicas": workload.desired},
        });
        let params = PatchParams::apply(manager::HANDOVER).force();
        self.patch(workload.kind, key, &params, &Patch::Apply(&object))
            .await?;
        Ok(())
    }

    /// Makes the former operator's fields ours, so that what we no longer send disappears with our next
    /// apply (WRK-7). `index` is where its entry stands.
    ///
    /// # Errors
    /// `Stale` when the entry is no longer there.
    pub async fn take_over_fields(
        &self,
        workload: &WorkloadRecord,
        index: usize,
    ) -> Result<(), WriteError> {
        let (key, uid) = (&workload.metadata.key, &workload.metadata.uid);
        let (deployments, stateful_sets) = (&self.deployments, &self.stateful_sets);
        match workload.kind {
            WorkloadKind::Deployment => {
                deployments
                    .take_over(key, uid, index, manager::WORKLOAD)
                    .await
            }
            WorkloadKind::StatefulSet => {
                stateful_sets
                    .take_over(key, uid, index, manager::WORKLOAD)
                    .await
            }
        }
    }

    /// Deletes the workload, its pods in the background. One that is gone is a success.
    ///
    /// # Errors
    /// `Stale` when another object has its name.
    pub async fn delete(&self, workload: &WorkloadRecord) -> Result<(), WriteError> {
        let (key, uid) = (&workload.metadata.key, &workload.metadata.uid);
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.delete(key, uid).await,
            WorkloadKind::StatefulSet => self.stateful_sets.delete(key, uid).await,
        }
    }

    /// Gives up our ownerReference on the workload, which then outlives its actor (FW-23).
    ///
    /// # Errors
    /// `Stale` when another object has its name.
    pub async fn orphan(&self, workload: &WorkloadRecord, actor: &str) -> Result<(), WriteError> {
        let (key, uid) = (&workload.metadata.key, &workload.metadata.uid);
        match workload.kind {
            WorkloadKind::Deployment => self.deployments.orphan(key, uid, actor).await,
            WorkloadKind::StatefulSet => self.stateful_sets.orphan(key, uid, actor).await,
        }
    }

    async fn patch<P>(
        &self,
        kind: WorkloadKind,
        key: &Key,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Arc<WorkloadRecord>, kube::Error>
    where
        P: serde::Serialize + std::fmt::Debug,
    {
        Ok(match kind {
            WorkloadKind::Deployment => {
                let written = self.deployments.patch(key, params, patch).await?;
                Arc::clone(&written.record)
            }
            WorkloadKind::StatefulSet => {
                let written = self.stateful_sets.patch(key, params, patch).await?;
                Arc::clone(&written.record)
            }
        })
    }
}

fn of_kind<K>(seen: Option<Arc<OfKind<K>>>) -> Option<Arc<WorkloadRecord>> {
    seen.map(|seen| Arc::clone(&seen.record))
}
