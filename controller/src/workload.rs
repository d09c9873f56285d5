//! Workloads of both kinds at the API server: what stands there, and our writes.

use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use asya_shared::names::manager;
use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch as JsonPatch, PatchOperation, ReplaceOperation, TestOperation};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::record::{Key, OfKind, Seen, WorkloadRecord, WorkloadType};
use crate::store::Store;

/// Reads and writes workloads.
pub struct Workloads {
    client: Client,
    /// What the watch of Deployments shows.
    pub deployments: Arc<Store<OfKind<Deployment>>>,
    /// What the watch of `StatefulSet`s shows.
    pub stateful_sets: Arc<Store<OfKind<StatefulSet>>>,
}

/// Why a workload that we made could not be written: it is another one by now.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object changed, or was replaced.
    #[error("the workload changed meanwhile")]
    Stale,
    /// The API server refuses or fails.
    #[error(transparent)]
    Api(kube::Error),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() => Self::Stale,
            error => Self::Api(error),
        }
    }
}

impl Workloads {
    /// Reads and writes by `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            deployments: Arc::default(),
            stateful_sets: Arc::default(),
        }
    }

    /// What the watches show under a name.
    pub fn seen(&self, kind: WorkloadKind, key: &Key) -> Option<Arc<WorkloadRecord>> {
        match kind {
            WorkloadKind::Deployment => self
                .deployments
                .get(key)
                .map(|seen| Arc::clone(&seen.record)),
            WorkloadKind::StatefulSet => self
                .stateful_sets
                .get(key)
                .map(|seen| Arc::clone(&seen.record)),
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
        match kind {
            WorkloadKind::Deployment => read(&self.api::<Deployment>(key), key).await,
            WorkloadKind::StatefulSet => read(&self.api::<StatefulSet>(key), key).await,
        }
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
        let at = |field: &str| {
            PointerBuf::from_tokens(["metadata", "managedFields", &index.to_string(), field])
        };
        let replace = |path, value: &str| {
            PatchOperation::Replace(ReplaceOperation {
                path,
                value: json!(value),
            })
        };
        let operations = vec![
            PatchOperation::Test(TestOperation {
                path: PointerBuf::from_tokens(["metadata", "uid"]),
                value: json!(&*workload.metadata.uid),
            }),
            PatchOperation::Test(TestOperation {
                path: at("manager"),
                value: json!(manager::FORMER_OPERATOR),
            }),
            replace(at("manager"), manager::WORKLOAD),
            replace(at("operation"), "Apply"),
        ];
        let patch = Patch::<()>::Json(JsonPatch(operations));
        match self
            .patch(
                workload.kind,
                &workload.metadata.key,
                &PatchParams::default(),
                &patch,
            )
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 422 => Err(WriteError::Stale),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the workload of this uid, its pods in the background. One that is gone is a success.
    ///
    /// # Errors
    /// `Stale` when another object has its name.
    pub async fn delete(&self, workload: &WorkloadRecord) -> Result<(), WriteError> {
        let uid = Some(workload.metadata.uid.to_string());
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let key = &workload.metadata.key;
        let deleted = match workload.kind {
            WorkloadKind::Deployment => self
                .api::<Deployment>(key)
                .delete(&key.name, &params)
                .await
                .map(drop),
            WorkloadKind::StatefulSet => self
                .api::<StatefulSet>(key)
                .delete(&key.name, &params)
                .await
                .map(drop),
        };
        unless_gone(deleted)
    }

    /// Gives up our ownerReference on the workload, which then outlives its actor (FW-23).
    ///
    /// # Errors
    /// `Stale` when another object has its name.
    pub async fn orphan(
        &self,
        workload: &WorkloadRecord,
        actor_uid: &str,
    ) -> Result<(), WriteError> {
        let patch = json!({"metadata": {
            "uid": &*workload.metadata.uid,
            "ownerReferences": [{"$patch": "delete", "uid": actor_uid}],
        }});
        let params = PatchParams::default();
        let patched = self
            .patch(
                workload.kind,
                &workload.metadata.key,
                &params,
                &Patch::Strategic(patch),
            )
            .await;
        unless_gone(patched.map(drop))
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
        match kind {
            WorkloadKind::Deployment => {
                write(&self.api(key), &self.deployments, key, params, patch).await
            }
            WorkloadKind::StatefulSet => {
                write(&self.api(key), &self.stateful_sets, key, params, patch).await
            }
        }
    }

    fn api<K: WorkloadType>(&self, key: &Key) -> Api<Seen<OfKind<K>>> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

async fn read<K: WorkloadType>(
    api: &Api<Seen<OfKind<K>>>,
    key: &Key,
) -> Result<Option<Arc<WorkloadRecord>>, kube::Error> {
    let live = api.get_opt(&key.name).await?;
    Ok(live.map(|seen| Arc::clone(&seen.record.record)))
}

/// The answer stands in the store until the watch has caught up with it.
async fn write<K: WorkloadType, P>(
    api: &Api<Seen<OfKind<K>>>,
    store: &Store<OfKind<K>>,
    key: &Key,
    params: &PatchParams,
    patch: &Patch<P>,
) -> Result<Arc<WorkloadRecord>, kube::Error>
where
    P: serde::Serialize + std::fmt::Debug,
{
    let seen = api.patch(&key.name, params, patch).await?;
    store.wrote(&seen);
    Ok(Arc::clone(&seen.record.record))
}

fn unless_gone(written: Result<(), kube::Error>) -> Result<(), WriteError> {
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        written => Ok(written?),
    }
}
