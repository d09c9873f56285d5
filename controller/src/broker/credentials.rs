//! Secrets with broker credentials: read by name on demand, never listed, watched or written (SEC-2).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::SecretKeyRef;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::BrokerError;

const CACHE_TTL: Duration = Duration::from_mins(5);

/// Reads Secrets from the operator's namespace first, then from the actor's (SEC-1).
pub struct Credentials {
    client: Client,
    operator_namespace: Arc<str>,
    cache: Mutex<HashMap<CredentialKey, (Instant, Arc<str>)>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct CredentialKey {
    namespace: Arc<str>,
    name: String,
    key: String,
}

impl CredentialKey {
    fn of(namespace: &str, reference: &SecretKeyRef) -> Self {
        Self {
            namespace: namespace.into(),
            name: reference.name.clone(),
            key: reference.key.clone(),
        }
    }
}

impl Credentials {
    /// Reads through `client`; `operator_namespace` is the operator's namespace.
    pub fn new(client: Client, operator_namespace: &str) -> Self {
        Self {
            client,
            operator_namespace: operator_namespace.into(),
            cache: Mutex::default(),
        }
    }

    /// Returns the value at `reference`.
    ///
    /// # Errors
    /// `CredentialsMissing`, naming both namespaces; `Unreachable` if the API server does not respond.
    pub async fn read(
        &self,
        reference: &SecretKeyRef,
        namespace: &str,
    ) -> Result<Arc<str>, BrokerError> {
        let mut namespaces = vec![&*self.operator_namespace];
        if namespace != &*self.operator_namespace {
            namespaces.push(namespace);
        }
        // Check the cache for both namespaces first: a Secret that exists only in the actor's namespace must not cost a
        // read in the operator's on every call.
        if let Some(text) = namespaces.iter().find_map(|ns| self.cached(ns, reference)) {
            return Ok(text);
        }
        for namespace in &namespaces {
            if let Some(text) = self.read_in(namespace, reference).await? {
                return Ok(text);
            }
        }
        Err(BrokerError::CredentialsMissing(format!(
            "no Secret {} with a non-empty key {} in namespace {}; create it there",
            reference.name,
            reference.key,
            namespaces.join(" or "),
        )))
    }

    /// Whether no Secret of this namespace has the key, as far as the operator may read it.
    ///
    /// # Errors
    /// If the API server does not respond.
    pub async fn is_missing_in(
        &self,
        namespace: &str,
        reference: &SecretKeyRef,
    ) -> Result<bool, kube::Error> {
        if self.cached(namespace, reference).is_some() {
            return Ok(false);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match api.get_opt(&reference.name).await {
            Ok(secret) => {
                let data = secret.and_then(|secret| secret.data);
                Ok(data.is_none_or(|data| !data.contains_key(&reference.key)))
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn cached(&self, namespace: &str, reference: &SecretKeyRef) -> Option<Arc<str>> {
        let cached = self
            .lock()
            .get(&CredentialKey::of(namespace, reference))
            .cloned();
        cached
            .filter(|(read, _)| read.elapsed() < CACHE_TTL)
            .map(|(_, text)| text)
    }

    /// Drops the values cached for this namespace after the broker rejected them, so that its next call reads the
    /// Secret again. What other namespaces use stays.
    pub fn forget(&self, reference: &SecretKeyRef, namespace: &str) {
        let is_used = |of: &str| of == namespace || of == &*self.operator_namespace;
        self.lock()
            .retain(|key, _| key.name != reference.name || !is_used(&key.namespace));
    }

    async fn read_in(
        &self,
        namespace: &str,
        reference: &SecretKeyRef,
    ) -> Result<Option<Arc<str>>, BrokerError> {
        let cache_key = CredentialKey::of(namespace, reference);
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = match api.get_opt(&reference.name).await {
            Ok(secret) => secret,
            // Treat a Secret that the operator is not permitted to read as missing.
            Err(kube::Error::Api(status)) if status.is_forbidden() => None,
            Err(_) => {
                let text = format!(
                    "cannot read Secret {namespace}/{}: the API server does not respond",
                    cache_key.name
                );
                return Err(BrokerError::Unreachable(text));
            }
        };
        let bytes = secret
            .and_then(|secret| secret.data)
            .and_then(|mut data| data.remove(&reference.key));
        let text = bytes
            .and_then(|bytes| String::from_utf8(bytes.0).ok())
            .filter(|text| !text.is_empty());
        let text: Option<Arc<str>> = text.map(Into::into);
        let Some(text) = text else {
            return Ok(self.cached_while_terminating(&cache_key).await);
        };
        self.lock()
            .insert(cache_key, (Instant::now(), Arc::clone(&text)));
        Ok(Some(text))
    }

    /// A terminating namespace may lose its Secrets before the queues of its actors are deleted: fall back to the
    /// cached value (FIN-5).
    async fn cached_while_terminating(&self, cache_key: &CredentialKey) -> Option<Arc<str>> {
        let (_, text) = self.lock().get(cache_key).cloned()?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = namespaces.get_opt(&cache_key.namespace).await.ok()??;
        namespace
            .metadata
            .deletion_timestamp
            .is_some()
            .then_some(text)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<CredentialKey, (Instant, Arc<str>)>> {
        self.cache.lock()
    }
}
