//! Objects of one kind at the API server: what the watch shows of them, what stands there, and our writes.

use std::sync::Arc;

use asya_shared::names::manager;
use json_patch::{Patch as JsonPatch, PatchOperation};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::{Value, json};

use super::impersonation::Applier;
use super::patch::{is_failed_test, remove, replace, test};
use super::store::Store;
use crate::fault::{Error, Fault};
use crate::record::{Key, Record, Seen};

/// A version that no object has. An apply that names one updates the object of that version and, where none has the
/// name, makes it.
const NO_OBJECT_HAS: &str = "1";

/// Reads and writes the objects of a kind.
pub struct Objects<R> {
    client: Client,
    applier: Applier,
    /// What the watch shows.
    pub store: Arc<Store<R>>,
}

/// Why an object that we made could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It changed, or was replaced.
    #[error("the object changed meanwhile")]
    Stale,
    /// The API server refuses or fails.
    #[error(transparent)]
    Api(kube::Error),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stale => Self::Stale("an object"),
            WriteError::Api(error) => Self::Api(error),
        }
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() => Self::Stale,
            error => Self::Api(error),
        }
    }
}

impl<R> Objects<R>
where
    R: Record,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    /// Objects that are applied by `applier`; all else is its own client's.
    pub fn new(applier: &Applier) -> Self {
        Self {
            client: applier.own.clone(),
            applier: applier.clone(),
            store: Arc::default(),
        }
    }

    /// What stands under a name, also where the watch, which may see our labels only, shows nothing.
    ///
    /// # Errors
    /// When the API server does not tell.
    pub async fn live(&self, key: &Key) -> Result<Option<Arc<R>>, kube::Error> {
        let live = self.api(key).get_opt(&key.name).await?;
        Ok(live.map(|seen| seen.record))
    }

    /// Whether the account is there in whose name the object would be applied (FW-27).
    ///
    /// # Errors
    /// When the API server does not tell. That there is none is the inner error.
    pub async fn may_apply(&self, key: &Key) -> Result<Result<(), Fault>, Error> {
        self.applier.check(&key.namespace).await
    }

    /// Makes the object of this uid what `object` says. The API server decides whose the name is: another that has it by
    /// now is left as it is.
    ///
    /// # Errors
    /// 409 when another object has the name, or none; else when the API server refuses or fails.
    pub async fn update(
        &self,
        key: &Key,
        uid: &str,
        manager: &str,
        object: &Value,
    ) -> Result<Arc<R>, kube::Error> {
        let mut object = object.clone();
        object["metadata"]["uid"] = uid.into();
        self.apply(key, manager, &object).await
    }

    async fn apply(&self, key: &Key, manager: &str, object: &Value) -> Result<Arc<R>, kube::Error> {
        let params = PatchParams::apply(manager).force();
        let api = Api::namespaced(self.applier.client(&key.namespace), &key.namespace);
        self.patch_by(&api, key, &params, &Patch::Apply(object))
            .await
    }

    /// Makes the object, unless there is one of its name: that is left as it is, whosever it is. The API server
    /// decides, so nobody can come between a look and this.
    ///
    /// # Errors
    /// 409 when there is one; else when the API server refuses or fails.
    pub async fn create(
        &self,
        key: &Key,
        manager: &str,
        object: &Value,
    ) -> Result<Arc<R>, kube::Error> {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = NO_OBJECT_HAS.into();
        self.apply(key, manager, &object).await
    }

    /// Patches an object. The answer stands in the store until the watch has caught up with it.
    ///
    /// # Errors
    /// When the API server refuses or fails.
    pub async fn patch<P>(
        &self,
        key: &Key,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Arc<R>, kube::Error>
    where
        P: Serialize + std::fmt::Debug,
    {
        self.patch_by(&self.api(key), key, params, patch).await
    }

    async fn patch_by<P>(
        &self,
        api: &Api<Seen<R>>,
        key: &Key,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Arc<R>, kube::Error>
    where
        P: Serialize + std::fmt::Debug,
    {
        let seen = api.patch(&key.name, params, patch).await?;
        self.store.wrote(&seen);
        Ok(seen.record)
    }

    /// Makes the former operator's fields those of `manager`, so that what we no longer send disappears with
    /// our next apply (WRK-7). `index` is where its entry stands.
    ///
    /// # Errors
    /// `Stale` when the entry is no longer there.
    pub async fn take_over(
        &self,
        key: &Key,
        uid: &str,
        index: usize,
        manager: &str,
    ) -> Result<(), WriteError> {
        let index = index.to_string();
        let at = |field| ["metadata", "managedFields", &index, field];
        let operations = vec![
            test(&["metadata", "uid"], json!(uid)),
            test(&at("manager"), json!(manager::FORMER_OPERATOR)),
            replace(&at("manager"), json!(manager)),
            replace(&at("operation"), json!("Apply")),
        ];
        self.patch_tested(key, operations).await
    }

    /// Deletes the object of this uid, what depends on it in the background. One that is gone is a success.
    ///
    /// # Errors
    /// `Stale` when another object has its name.
    pub async fn delete(&self, key: &Key, uid: &str) -> Result<(), WriteError> {
        self.remove(key, uid, PropagationPolicy::Background).await
    }

    /// The same, and what depends on it stays.
    ///
    /// # Errors
    /// `Stale` when another object has its name.
    pub async fn delete_alone(&self, key: &Key, uid: &str) -> Result<(), WriteError> {
        self.remove(key, uid, PropagationPolicy::Orphan).await
    }

    async fn remove(
        &self,
        key: &Key,
        uid: &str,
        propagation: PropagationPolicy,
    ) -> Result<(), WriteError> {
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        unless_gone(self.api(key).delete(&key.name, &params).await.map(drop))
    }

    /// Gives up the ownerReference of `owner` on the object of this uid, which then outlives it (FW-23).
    ///
    /// # Errors
    /// `Stale` when another object has its name, or its owners change meanwhile.
    pub async fn orphan(&self, key: &Key, uid: &str, owner: &str) -> Result<(), WriteError> {
        self.change_owner(key, uid, owner, remove).await
    }

    /// Makes `owner` of the object of this uid the actor of the same name with the uid `heir`: it was restored
    /// from a backup (D13). In one step, because an object without an owner would be nobody's.
    ///
    /// # Errors
    /// `Stale` when another object has its name, or its owners change meanwhile.
    pub async fn bequeath(
        &self,
        key: &Key,
        uid: &str,
        owner: &str,
        heir: &str,
    ) -> Result<(), WriteError> {
        self.change_owner(key, uid, owner, |reference| {
            let path: Vec<&str> = reference.iter().copied().chain(["uid"]).collect();
            replace(&path, heir.into())
        })
        .await
    }

    async fn change_owner(
        &self,
        key: &Key,
        uid: &str,
        owner: &str,
        change: impl FnOnce(&[&str]) -> PatchOperation,
    ) -> Result<(), WriteError> {
        let live = self.api(key).get_metadata_opt(&key.name).await?;
        let owners = live.and_then(|live| live.metadata.owner_references);
        let owners = owners.unwrap_or_default();
        let Some(index) = owners.iter().position(|reference| reference.uid == owner) else {
            return Ok(());
        };
        let operations = vec![
            test(&["metadata", "uid"], json!(uid)),
            test(&["metadata", "ownerReferences"], json!(owners)),
            change(&["metadata", "ownerReferences", &index.to_string()]),
        ];
        self.patch_tested(key, operations).await
    }

    /// A test that fails means that the object changed.
    async fn patch_tested(
        &self,
        key: &Key,
        operations: Vec<PatchOperation>,
    ) -> Result<(), WriteError> {
        let patch = Patch::<()>::Json(JsonPatch(operations));
        let patched = self.patch(key, &PatchParams::default(), &patch).await;
        match unless_gone(patched.map(drop)) {
            Err(WriteError::Api(kube::Error::Api(status))) if is_failed_test(&status) => {
                Err(WriteError::Stale)
            }
            patched => patched,
        }
    }

    fn api(&self, key: &Key) -> Api<Seen<R>> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn unless_gone(written: Result<(), kube::Error>) -> Result<(), WriteError> {
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        written => Ok(written?),
    }
}
