//! The `ConfigMap` with the runtime script: one per namespace with actors, shared by them (RUN-1, RUN-2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use asya_shared::inject::runtime_config_map;
use asya_shared::names::{RUNTIME_CONFIG_MAP, annotation, label, manager};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tracing::warn;

use crate::reconcile::{Error, Fault, Reason, Retry, refused};
use crate::record::{ConfigMapRecord, Fingerprint, Key, Record, Seen};
use crate::store::Store;

/// Keeps the script where actors need it.
pub struct RuntimeConfigMaps {
    client: Client,
    script: Arc<str>,
    /// A namespace whose script stays without actors (RUN-3).
    home: Arc<str>,
    namespaces: Mutex<HashMap<Arc<str>, Arc<AsyncMutex<Known>>>>,
}

/// What we know of one namespace's script: the object that was last found as wanted, and what we own of it.
#[derive(Default)]
struct Known(Option<(Box<str>, Fingerprint)>);

impl RuntimeConfigMaps {
    /// Keeps `script`; `home` is the namespace in which it stays without actors.
    pub fn new(client: Client, script: Arc<str>, home: &str) -> Self {
        Self {
            client,
            script,
            home: home.into(),
            namespaces: Mutex::default(),
        }
    }

    /// Makes the script of `namespace` what it should be; 300 actors that begin at once make one write.
    ///
    /// # Errors
    /// When the API server fails. A refusal is the inner error.
    pub async fn ensure(
        &self,
        store: &Store<ConfigMapRecord>,
        namespace: &str,
    ) -> Result<Result<(), Fault>, Error> {
        let entry = self.entry(namespace);
        let mut known = entry.lock().await;
        let (object, hash) = runtime_config_map(namespace, &self.script);
        let record = store.get(&Key::new(namespace, RUNTIME_CONFIG_MAP));
        match record {
            Some(record) if record.metadata().deleting => {
                return Err(Error::Stale("ConfigMap asya-runtime"));
            }
            Some(record) if is_current(&record, &hash, &known) => return Ok(Ok(())),
            record => match self.live(namespace).await? {
                Some(live) if !is_ours(&live) => return Ok(Err(not_owned(namespace))),
                Some(live) if record.is_some() && says(&live, &object) => {
                    known.remember(record.as_deref());
                    if known.0.is_some() {
                        return Ok(Ok(()));
                    }
                }
                _ => {}
            },
        }
        let params = PatchParams::apply(manager::RUNTIME).force();
        match self
            .records(namespace)
            .patch(RUNTIME_CONFIG_MAP, &params, &Patch::Apply(&object))
            .await
        {
            Ok(seen) => {
                store.wrote(&seen);
                known.remember(Some(&seen.record));
                tracing::info!(namespace, "Runtime ConfigMap reconciled");
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(refused(
                &format!("ConfigMap {namespace}/{RUNTIME_CONFIG_MAP}"),
                error,
            )?)),
        }
    }

    /// Whether the script stays in `namespace` without actors.
    pub fn is_home(&self, namespace: &str) -> bool {
        *self.home == *namespace
    }

    /// Keeps the script in its home namespace (RUN-3). One that is missing is told and not waited for.
    ///
    /// # Errors
    /// When the API server fails.
    pub async fn ensure_home(&self, store: &Store<ConfigMapRecord>) -> Result<(), Error> {
        if let Err(fault) = self.ensure(store, &self.home).await? {
            warn!(namespace = &*self.home, reason = %fault.reason, message = fault.message, "no runtime script at home");
        }
        Ok(())
    }

    /// Removes the script of a namespace that has no actors any more.
    ///
    /// # Errors
    /// When the API server fails.
    pub async fn remove(
        &self,
        store: &Store<ConfigMapRecord>,
        namespace: &str,
    ) -> Result<(), Error> {
        if self.is_home(namespace) {
            return Ok(());
        }
        let entry = self.entry(namespace);
        let mut known = entry.lock().await;
        let Some(record) = store
            .get(&Key::new(namespace, RUNTIME_CONFIG_MAP))
            .filter(|record| !record.orphaned)
        else {
            return Ok(());
        };
        known.0 = None;
        let uid = Some(record.metadata().uid.to_string());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self
            .records(namespace)
            .delete(RUNTIME_CONFIG_MAP, &params)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                Ok(())
            }
            Err(error) => Err(Error::Api(error)),
        }
    }

    /// Leaves the script to the workloads that outlive their actor (FW-23).
    ///
    /// # Errors
    /// When the API server fails.
    pub async fn orphan(
        &self,
        store: &Store<ConfigMapRecord>,
        namespace: &str,
    ) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {annotation::ORPHANED: "true"}}});
        let params = PatchParams {
            field_manager: Some(manager::RUNTIME.to_owned()),
            ..PatchParams::default()
        };
        match self
            .records(namespace)
            .patch(RUNTIME_CONFIG_MAP, &params, &Patch::Merge(&patch))
            .await
        {
            Ok(seen) => {
                store.wrote(&seen);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::Api(error)),
        }
    }

    fn entry(&self, namespace: &str) -> Arc<AsyncMutex<Known>> {
        let mut namespaces = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(namespaces.entry(namespace.into()).or_default())
    }

    fn records(&self, namespace: &str) -> Api<Seen<ConfigMapRecord>> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn live(&self, namespace: &str) -> Result<Option<ConfigMap>, Error> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        api.get_opt(RUNTIME_CONFIG_MAP).await.map_err(Error::Api)
    }
}

impl Known {
    fn remember(&mut self, record: Option<&ConfigMapRecord>) {
        self.0 =
            record.and_then(|record| Some((record.metadata().uid.clone(), record.fingerprint?)));
    }
}

fn is_current(record: &ConfigMapRecord, hash: &str, known: &Known) -> bool {
    let owned = record
        .fingerprint
        .map(|fingerprint| (record.metadata().uid.clone(), fingerprint));
    record.applied_hash.as_deref() == Some(hash) && owned.is_some() && owned == known.0
}

fn is_ours(live: &ConfigMap) -> bool {
    let labels = live.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(label::PART_OF))
        .is_some_and(|part_of| part_of == "asya")
}

/// Whether `live` holds all that we would send; what others added does not count.
fn says(live: &ConfigMap, object: &Value) -> bool {
    let same = |pointer: &str, held: Option<&std::collections::BTreeMap<String, String>>| {
        object
            .pointer(pointer)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .all(|(key, value)| {
                held.and_then(|held| held.get(key)).map(String::as_str) == value.as_str()
            })
    };
    same("/data", live.data.as_ref())
        && same("/metadata/labels", live.metadata.labels.as_ref())
        && same("/metadata/annotations", live.metadata.annotations.as_ref())
}

fn not_owned(namespace: &str) -> Fault {
    Fault {
        reason: Reason::NotOwned,
        message: format!(
            "ConfigMap {namespace}/{RUNTIME_CONFIG_MAP} exists and was not made by this operator; rename or delete it"
        ),
        retry: Retry::Slowly,
    }
}
