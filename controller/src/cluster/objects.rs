//! Objects of one kind: the cache that the watch fills, uncached reads, and writes.

use std::sync::Arc;

use asya_shared::names::manager;
use json_patch::{Patch as JsonPatch, PatchOperation};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::{Value, json};

use super::impersonation::Impersonation;
use super::patch::{is_failed_test, remove, replace, test};
use super::store::Store;
use crate::fault::{Conflict, Error, StepError};
use crate::record::{Key, Metadata, Projected, Record};

/// A resource version that no object has. An apply with it conflicts with an existing object, and creates the object if
/// there is none.
const NONEXISTENT_VERSION: &str = "1";

/// Reads and writes objects of one kind.
pub struct Objects<R> {
    client: Client,
    impersonation: Impersonation,
    /// Cache that the watch fills.
    pub store: Arc<Store<R>>,
}

/// Why an object could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It changed or was replaced; the text names it.
    #[error("{0}")]
    Stale(String),
    /// The API server rejected the write or failed.
    #[error(transparent)]
    Api(kube::Error),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stale(text) => Self::Conflict(text),
            WriteError::Api(error) => Self::Api(error),
        }
    }
}

impl From<WriteError> for StepError {
    fn from(error: WriteError) -> Self {
        Self::Error(error.into())
    }
}

impl WriteError {
    /// Classifies the API server's error for a write of the object of this kind and key.
    fn of(kind: &str, key: &Key, error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if Conflict::of_status(status).is_some() => {
                Self::Stale(format!("{kind} {key}: {}", status.message))
            }
            _ => Self::Api(error),
        }
    }

    /// The object of this kind and key changed or was replaced.
    pub fn stale(kind: &str, key: &Key) -> Self {
        Self::Stale(format!("{kind} {key} was changed concurrently"))
    }
}

impl<R> Objects<R>
where
    R: Record,
    R::Kind: Resource<Scope = NamespaceResourceScope>,
{
    /// Applies objects through `impersonation`; everything else goes through its own client.
    pub fn new(impersonation: &Impersonation) -> Self {
        Self {
            client: impersonation.operator_client.clone(),
            impersonation: impersonation.clone(),
            store: Arc::default(),
        }
    }

    /// Reads the object from the API server, past the cache, even if it lacks the labels that the watch selects.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn read(&self, key: &Key) -> Result<Option<Arc<R>>, kube::Error> {
        let existing = self.api(key).get_opt(&key.name).await?;
        Ok(existing.map(|projected| projected.record))
    }

    /// Checks that the account that would apply the object exists (FW-27).
    ///
    /// # Errors
    /// If the account is missing, or the API server fails.
    pub async fn check_impersonation(&self, key: &Key) -> Result<(), StepError> {
        self.impersonation.check(&key.namespace).await
    }

    /// Applies `object` to the object with this uid. The API server checks the uid, so another object that has taken
    /// the name is left as it is.
    ///
    /// # Errors
    /// 409 if another object has the name, or none does; otherwise if the API server rejects the write or fails.
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
        let api = Api::namespaced(self.impersonation.client(&key.namespace), &key.namespace);
        self.patch_by(&api, key, &params, &Patch::Apply(object))
            .await
    }

    /// Creates the object. Leaves an existing object of its name unchanged, even one of another owner. The API server
    /// decides, so there is no race between a check and the write.
    ///
    /// # Errors
    /// 409 if one exists; otherwise if the API server rejects the write or fails.
    pub async fn create(
        &self,
        key: &Key,
        manager: &str,
        object: &Value,
    ) -> Result<Arc<R>, kube::Error> {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = NONEXISTENT_VERSION.into();
        self.apply(key, manager, &object).await
    }

    /// Patches an object. The store holds the response until the watch has caught up with it.
    ///
    /// # Errors
    /// If the API server rejects the write or fails.
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
        api: &Api<Projected<R>>,
        key: &Key,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Arc<R>, kube::Error>
    where
        P: Serialize + std::fmt::Debug,
    {
        let projected = api.patch(&key.name, params, patch).await?;
        self.store.apply_response(&projected);
        Ok(projected.record)
    }

    /// Makes `manager` the owner of the Go operator's fields, so that the next apply removes those that it does not
    /// contain (WRK-7). `index` is the position of its entry in `managedFields`.
    ///
    /// # Errors
    /// `Stale` if the entry no longer exists.
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
            test(&at("manager"), json!(manager::GO_OPERATOR)),
            replace(&at("manager"), json!(manager)),
            replace(&at("operation"), json!("Apply")),
        ];
        self.patch_tested(key, operations).await
    }

    /// Deletes the object with this uid, and its dependents in the background. Succeeds if it does not exist.
    ///
    /// # Errors
    /// `Stale` if another object has its name.
    pub async fn delete(&self, key: &Key, uid: &str) -> Result<(), WriteError> {
        let preconditions = with_uid(uid);
        self.remove(key, preconditions, PropagationPolicy::Background)
            .await
    }

    /// Like [`Self::delete`], but only if the object is still as it was read: the cache may lag behind the garbage
    /// collector, which removes our owner reference from an object that is to stay (FW-23 (g)).
    ///
    /// # Errors
    /// `Stale` also if it has changed.
    pub async fn delete_unchanged(&self, read: &Metadata) -> Result<(), WriteError> {
        let preconditions = Preconditions {
            resource_version: Some(read.resource_version.to_string()),
            ..with_uid(&read.uid)
        };
        self.remove(&read.key, preconditions, PropagationPolicy::Background)
            .await
    }

    /// Like [`Self::delete`], but orphans its dependents.
    ///
    /// # Errors
    /// `Stale` if another object has its name.
    pub async fn delete_orphaning(&self, key: &Key, uid: &str) -> Result<(), WriteError> {
        self.remove(key, with_uid(uid), PropagationPolicy::Orphan)
            .await
    }

    async fn remove(
        &self,
        key: &Key,
        preconditions: Preconditions,
        propagation: PropagationPolicy,
    ) -> Result<(), WriteError> {
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let deleted = self.api(key).delete(&key.name, &params).await;
        ignore_not_found(deleted.map(drop)).map_err(|error| write_error::<R>(key, error))
    }

    /// Removes the owner reference to `owner` from the object with this uid, which then outlives it (FW-23).
    ///
    /// # Errors
    /// `Stale` if another object has its name, or its owners change concurrently.
    pub async fn orphan(&self, key: &Key, uid: &str, owner: &str) -> Result<(), WriteError> {
        self.change_owner(key, uid, owner, remove).await
    }

    /// Changes the object's owner reference from `owner` to `successor`: the uid of the actor of the same name that was
    /// restored from a backup (architecture, D13). In one step, because an object without an owner does not belong to
    /// the operator.
    ///
    /// # Errors
    /// `Stale` if another object has its name, or its owners change concurrently.
    pub async fn reparent(
        &self,
        key: &Key,
        uid: &str,
        owner: &str,
        successor: &str,
    ) -> Result<(), WriteError> {
        self.change_owner(key, uid, owner, |reference| {
            let path: Vec<&str> = reference.iter().copied().chain(["uid"]).collect();
            replace(&path, successor.into())
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
        let existing = self.api(key).get_metadata_opt(&key.name).await;
        let existing = existing.map_err(WriteError::Api)?;
        let owners = existing.and_then(|existing| existing.metadata.owner_references);
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

    /// Applies a patch with tests; a failed test means that the object changed.
    async fn patch_tested(
        &self,
        key: &Key,
        operations: Vec<PatchOperation>,
    ) -> Result<(), WriteError> {
        let patch = Patch::<()>::Json(JsonPatch(operations));
        let patched = self.patch(key, &PatchParams::default(), &patch).await;
        ignore_not_found(patched.map(drop)).map_err(|error| match error {
            kube::Error::Api(status) if is_failed_test(&status) => {
                WriteError::stale(&R::Kind::kind(&()), key)
            }
            error => write_error::<R>(key, error),
        })
    }

    fn api(&self, key: &Key) -> Api<Projected<R>> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn with_uid(uid: &str) -> Preconditions {
    Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    }
}

/// Classifies the API server's error for a write of an object of this kind.
pub fn write_error<R: Record>(key: &Key, error: kube::Error) -> WriteError {
    WriteError::of(&R::Kind::kind(&()), key, error)
}

fn ignore_not_found(written: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        written => written,
    }
}
