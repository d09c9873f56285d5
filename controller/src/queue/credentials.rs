//! Secrets with the brokers' credentials: read by name when needed, never listed, watched or written (SEC-2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asya_shared::config::SecretKeyRef;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client};
use tokio::time::Instant;

use super::BrokerError;

const KEEP: Duration = Duration::from_mins(5);

/// Reads Secrets in the operator's namespace, then in the actor's (SEC-1).
pub struct Credentials {
    client: Client,
    own_namespace: Arc<str>,
    cache: Mutex<HashMap<Place, (Instant, Arc<str>)>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    namespace: Arc<str>,
    name: String,
    key: String,
}

impl Credentials {
    /// Reads by `client`; `own_namespace` is the operator's.
    pub fn new(client: Client, own_namespace: &str) -> Self {
        Self {
            client,
            own_namespace: own_namespace.into(),
            cache: Mutex::default(),
        }
    }

    /// The text at `reference`.
    ///
    /// # Errors
    /// `CredentialsMissing`, naming both places; `Unreachable` when the API server does not answer.
    pub async fn read(
        &self,
        reference: &SecretKeyRef,
        namespace: &str,
    ) -> Result<Arc<str>, BrokerError> {
        let mut namespaces = vec![&*self.own_namespace];
        if namespace != &*self.own_namespace {
            namespaces.push(namespace);
        }
        for namespace in &namespaces {
            if let Some(text) = self.read_in(namespace, reference).await? {
                return Ok(text);
            }
        }
        Err(BrokerError::CredentialsMissing(format!(
            "Secret {} with a non-empty key {} is neither in namespace {}; create it in one of them",
            reference.name,
            reference.key,
            namespaces.join(" nor in "),
        )))
    }

    /// Reads anew next time: the broker refused what we have.
    pub fn forget(&self, reference: &SecretKeyRef) {
        self.lock().retain(|place, _| place.name != reference.name);
    }

    async fn read_in(
        &self,
        namespace: &str,
        reference: &SecretKeyRef,
    ) -> Result<Option<Arc<str>>, BrokerError> {
        let (name, key) = (reference.name.clone(), reference.key.clone());
        let place = Place {
            namespace: namespace.into(),
            name,
            key,
        };
        if let Some((read, text)) = self.lock().get(&place)
            && read.elapsed() < KEEP
        {
            return Ok(Some(Arc::clone(text)));
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = match api.get_opt(&reference.name).await {
            Ok(secret) => secret,
            // Which kubelet or user may read it is not for us to say: to us it is missing.
            Err(kube::Error::Api(status)) if status.is_forbidden() => None,
            Err(_) => {
                let text = format!(
                    "Secret {namespace}/{} cannot be read: the API server does not answer",
                    place.name
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
            return Ok(self.kept_for_the_end(&place).await);
        };
        self.lock()
            .insert(place, (Instant::now(), Arc::clone(&text)));
        Ok(Some(text))
    }

    /// FIN-5: a namespace that goes loses its Secrets while queues of its actors are yet to be deleted.
    async fn kept_for_the_end(&self, place: &Place) -> Option<Arc<str>> {
        let (_, text) = self.lock().get(place).cloned()?;
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get_opt(&place.namespace).await.ok()??;
        found.metadata.deletion_timestamp.is_some().then_some(text)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Place, (Instant, Arc<str>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
