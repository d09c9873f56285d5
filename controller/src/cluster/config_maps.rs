//! `ConfigMap`s shared by the actors of a namespace: created by the first that needs one, removed with the last actor
//! (RUN-2).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use asya_shared::applied::HashedManifest;
use asya_shared::names::{annotation, label};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;

use super::impersonation::Impersonation;
use super::objects::{Objects, WriteError};
use super::watch_scope::{WatchScope, covers};
use crate::fault::{Error, Fault, Reason, Requeue, StepError};
use crate::record::{ConfigMapRecord, Fingerprint, Key};

/// Maintains the shared `ConfigMap`s.
pub struct ConfigMaps {
    client: Client,
    /// The watched objects, and the operator's writes to them.
    pub objects: Objects<ConfigMapRecord>,
    known: Mutex<HashMap<Key, Arc<AsyncMutex<KnownState>>>>,
}

#[derive(Default)]
struct KnownState {
    /// Uid of the object last observed in its desired state, and the fingerprint of the fields that the operator owns.
    verified: Option<(Box<str>, Fingerprint)>,
    /// Whether the name was last found to belong to another owner.
    is_foreign: bool,
}

impl ConfigMaps {
    /// Applies `ConfigMap`s through `impersonation`.
    pub fn new(impersonation: &Impersonation) -> Self {
        Self {
            objects: Objects::new(impersonation),
            client: impersonation.operator_client.clone(),
            known: Mutex::default(),
        }
    }

    /// Brings a `ConfigMap` to its desired state, with a single write even if 300 actors start together. Returns
    /// whether it wrote.
    ///
    /// # Errors
    /// If the API server rejects the write or fails.
    pub async fn ensure(&self, key: &Key, desired: &HashedManifest) -> Result<bool, StepError> {
        let entry = self.entry(key);
        let mut known = entry.lock().await;
        let record = self.objects.store.get(key);
        let mut found = None;
        match record {
            // Its deletion triggers a watch event.
            Some(record) if record.metadata.deleting => {
                let text =
                    format!("ConfigMap {key} is being deleted; it is recreated once it is gone");
                return Err(Fault::until_change(Reason::ReconcileError, text).into());
            }
            Some(record) if is_current(&record, &desired.hash, &known) => return Ok(false),
            // The apply itself detects whether the name is taken.
            None if !known.is_foreign => {}
            record => {
                found = match self.read(key).await? {
                    Some(existing) if !is_ours(&existing) => {
                        return Err(not_owned(key, &existing).into());
                    }
                    Some(existing)
                        if record.is_some() && has_content(&existing, &desired.object) =>
                    {
                        known.remember(record.as_deref());
                        if known.verified.is_some() {
                            return Ok(false);
                        }
                        existing.metadata.uid
                    }
                    existing => existing.and_then(|existing| existing.metadata.uid),
                }
            }
        }
        self.objects.check_impersonation(key).await?;
        let written = self.write(key, desired, found).await;
        match &written {
            Ok(record) => known.remember(Some(record)),
            Err(StepError::Fault(fault)) => known.is_foreign = fault.reason == Reason::NotOwned,
            Err(StepError::Error(_)) => {}
        }
        written.map(|_| true)
    }

    /// Whether the `ConfigMap` is still in its desired state, which has this hash.
    pub async fn is_current(&self, key: &Key, hash: &str) -> bool {
        let entry = self.entry(key);
        let known = entry.lock().await;
        let record = self.objects.store.get(key);
        record.is_some_and(|record| !record.metadata.deleting && is_current(&record, hash, &known))
    }

    /// Creates the `ConfigMap`, or applies to the existing one with the uid `found`.
    async fn write(
        &self,
        key: &Key,
        desired: &HashedManifest,
        found: Option<String>,
    ) -> Result<Arc<ConfigMapRecord>, StepError> {
        let what = format!("ConfigMap {key}");
        let manager = ConfigMapRecord::manager_of(&key.name);
        let uid = if let Some(uid) = found {
            uid
        } else {
            let error = match self.objects.create(key, manager, &desired.object).await {
                Ok(record) => return Ok(record),
                Err(source) => StepError::of_write(&what, source),
            };
            if !error.object_may_exist() {
                return Err(error);
            }
            match self.read(key).await? {
                None => return Err(error),
                Some(existing) if !is_ours(&existing) => {
                    return Err(not_owned(key, &existing).into());
                }
                Some(existing) => existing.metadata.uid.unwrap_or_default(),
            }
        };
        let updated = self.objects.update(key, &uid, manager, &desired.object);
        updated
            .await
            .map_err(|error| StepError::of_write(&what, error))
    }

    /// Removes a `ConfigMap` that no actor needs any more, unless it was orphaned.
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn remove(&self, key: &Key) -> Result<(), Error> {
        let entry = self.entry(key);
        let removed = self.remove_known(key, &mut *entry.lock().await).await;
        self.drop_unused(key, entry);
        removed
    }

    async fn remove_known(&self, key: &Key, known: &mut KnownState) -> Result<(), Error> {
        let record = self.objects.store.get(key);
        let Some(record) = record.filter(|record| !record.orphaned) else {
            return Ok(());
        };
        known.verified = None;
        match self.objects.delete(key, &record.metadata.uid).await {
            // Another object has taken the name, so another actor needs it.
            Ok(()) | Err(WriteError::Stale(_)) => Ok(()),
            Err(WriteError::Api(error)) => Err(Error::Api(error)),
        }
    }

    /// Leaves the `ConfigMap` to workloads that outlive their actor (FW-23).
    ///
    /// # Errors
    /// If the API server fails.
    pub async fn orphan(&self, key: &Key) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {annotation::ORPHANED: "true"}}});
        let params = PatchParams {
            field_manager: Some(ConfigMapRecord::manager_of(&key.name).to_owned()),
            ..PatchParams::default()
        };
        match self
            .objects
            .patch(key, &params, &Patch::Merge(&patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::Api(error)),
        }
    }

    fn entry(&self, key: &Key) -> Arc<AsyncMutex<KnownState>> {
        let mut known = self.known.lock();
        Arc::clone(known.entry(key.clone()).or_default())
    }

    /// Drops the entry of an unneeded `ConfigMap`, unless another task is about to create it again.
    fn drop_unused(&self, key: &Key, entry: Arc<AsyncMutex<KnownState>>) {
        let mut known = self.known.lock();
        drop(entry);
        if known
            .get(key)
            .is_some_and(|entry| Arc::strong_count(entry) == 1)
        {
            known.remove(key);
        }
    }

    /// Drops the state of namespaces outside `scopes`.
    pub fn retain_scopes(&self, scopes: &BTreeSet<WatchScope>) {
        self.objects.store.retain_scopes(scopes);
        let mut known = self.known.lock();
        known.retain(|key, _| covers(scopes, key));
    }

    async fn read(&self, key: &Key) -> Result<Option<ConfigMap>, Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        api.get_opt(&key.name).await.map_err(Error::Api)
    }
}

impl KnownState {
    fn remember(&mut self, record: Option<&ConfigMapRecord>) {
        self.verified = record.and_then(|record| {
            Some((
                record.metadata.uid.clone(),
                record.last_applied.fingerprint?,
            ))
        });
        self.is_foreign = false;
    }
}

fn is_current(record: &ConfigMapRecord, hash: &str, known: &KnownState) -> bool {
    let fingerprint = record.last_applied.fingerprint;
    let owned = fingerprint.map(|fingerprint| (record.metadata.uid.clone(), fingerprint));
    record.last_applied.hash.as_deref() == Some(hash) && owned.is_some() && owned == known.verified
}

fn is_ours(existing: &ConfigMap) -> bool {
    let labels = existing.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(label::PART_OF))
        .is_some_and(|part_of| part_of == "asya")
}

/// Whether `existing` holds everything that the operator would apply; additions by others are ignored.
fn has_content(existing: &ConfigMap, object: &Value) -> bool {
    let contains = |pointer: &str, held: Option<&std::collections::BTreeMap<String, String>>| {
        object
            .pointer(pointer)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .all(|(key, value)| {
                held.and_then(|held| held.get(key)).map(String::as_str) == value.as_str()
            })
    };
    contains("/data", existing.data.as_ref())
        && contains("/metadata/labels", existing.metadata.labels.as_ref())
        && contains(
            "/metadata/annotations",
            existing.metadata.annotations.as_ref(),
        )
}

/// Names the owner of the `ConfigMap` that has taken the name (SA-3).
fn not_owned(key: &Key, existing: &ConfigMap) -> Fault {
    let mut owners = existing.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let labels = existing.metadata.labels.as_ref();
    let manager = labels.and_then(|labels| labels.get(label::MANAGED_BY));
    let ownership = match (owner, manager) {
        (Some(owner), _) => format!("belongs to {} {}", owner.kind, owner.name),
        (None, Some(manager)) => format!("is managed by {manager}"),
        (None, None) => "was not created by this operator".to_owned(),
    };
    Fault {
        reason: Reason::NotOwned,
        message: format!("ConfigMap {key} exists and {ownership}; rename or delete it"),
        requeue: Requeue::SlowBackoff,
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    fn config_maps() -> ConfigMaps {
        let server = tower::service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, BoxError>("no server".into())
        });
        ConfigMaps::new(&Impersonation::new(Client::new(server, "default"), None))
    }

    /// FW-14
    #[tokio::test]
    async fn unneeded_entries_are_dropped() {
        let (maps, key) = (config_maps(), Key::new("ns", "asya-runtime"));
        let known = || maps.known.lock().len();
        let another = maps.entry(&key);
        maps.remove(&key).await.unwrap();
        assert_eq!(known(), 1, "another task holds the entry");
        drop(another);
        maps.remove(&key).await.unwrap();
        assert_eq!(known(), 0);

        maps.entry(&key);
        maps.entry(&Key::new("other", "asya-runtime"));
        maps.retain_scopes(&[WatchScope::Namespace("other".into())].into());
        assert_eq!(known(), 1, "only the watched namespace is left");
    }

    /// SA-3
    #[test]
    fn foreign_config_map_is_reported_with_its_owner() {
        let message = |metadata: Value| {
            let existing = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            let fault = not_owned(&Key::new("ns", "asya-runtime"), &existing);
            assert_eq!(fault.reason, Reason::NotOwned);
            fault.message
        };
        let owners = json!([
            {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "1"},
            {"apiVersion": "example.com/v1", "kind": "Site", "name": "web", "uid": "2", "controller": true},
        ]);
        let helm = json!({"app.kubernetes.io/managed-by": "Helm"});
        for (metadata, ownership) in [
            (json!({}), "was not created by this operator"),
            (json!({"labels": helm}), "is managed by Helm"),
            (
                json!({"labels": helm, "ownerReferences": owners}),
                "belongs to Site web",
            ),
        ] {
            let expected =
                format!("ConfigMap ns/asya-runtime exists and {ownership}; rename or delete it");
            assert_eq!(message(metadata), expected);
        }
    }
}
