//! The Secret at the API server: read, and written only where it was read last (CERT-2).

use std::collections::BTreeMap;

use asya_shared::names::{MANAGED_BY, annotation, label, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::bundle::Bundle;
use crate::change::Change;
use crate::secret::{TYPE, TlsSecret};

/// Why the Secret was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It is not as it was read any more: read it again, and decide again.
    #[error("the Secret changed meanwhile")]
    Conflict,
    /// The API server fails or refuses.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The Secret's place.
#[derive(Clone)]
pub struct Store {
    api: Api<TlsSecret>,
    name: String,
}

impl Store {
    /// The Secret of this name. `client` passes the fence: only the leader writes.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }

    /// The Secret as it is now.
    ///
    /// # Errors
    /// When the API server fails or refuses.
    pub async fn read(&self) -> kube::Result<Option<TlsSecret>> {
        self.api.get_opt(&self.name).await
    }

    /// Writes the Secret, if it still is as it was `before`, and answers it as it is then. From now on it goes with
    /// `owner`; without one, with whom it went before.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when it is not.
    pub async fn write(
        &self,
        before: Option<&TlsSecret>,
        change: Change,
        owner: Option<&OwnerReference>,
    ) -> Result<TlsSecret, WriteError> {
        let mut secret = before.cloned().unwrap_or_else(|| self.first());
        if let Some(owner) = owner {
            let owners = secret.metadata.owner_references.get_or_insert_default();
            owners.retain(|it| (&it.kind, &it.name) != (&owner.kind, &owner.name));
            owners.push(owner.clone());
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        match change.since {
            Some(since) => {
                let since = format!("{since:.0}");
                annotations.insert(annotation::AUTHORITY_SINCE.to_owned(), since);
            }
            None => drop(annotations.remove(annotation::AUTHORITY_SINCE)),
        }
        secret.data = change.data;
        let params = PostParams {
            field_manager: Some(manager::CERTS.to_owned()),
            ..PostParams::default()
        };
        let written = match before {
            Some(_) => self.api.replace(&self.name, &params, &secret).await,
            None => self.api.create(&params, &secret).await,
        };
        written.map_err(|error| match error {
            kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => {
                WriteError::Conflict
            }
            // It is gone. Where it was to be created, its namespace is.
            kube::Error::Api(status) if status.is_not_found() && before.is_some() => {
                WriteError::Conflict
            }
            other => WriteError::Api(other),
        })
    }

    fn first(&self) -> TlsSecret {
        let labels = [
            (label::MANAGED_BY, MANAGED_BY),
            (label::COMPONENT, "webhook"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        TlsSecret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(BTreeMap::from(labels)),
                ..ObjectMeta::default()
            },
            kind: Some(TYPE.to_owned()),
            ..TlsSecret::default()
        }
    }
}

impl TlsSecret {
    /// What it says, judged.
    #[must_use]
    pub fn bundle(&self) -> Bundle {
        let annotations = self.metadata.annotations.as_ref();
        let since = annotations.and_then(|all| all.get(annotation::AUTHORITY_SINCE));
        Bundle::read(&self.data, since.map(String::as_str))
    }
}
