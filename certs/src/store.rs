//! Reads the two Secrets, and writes each only if it has not changed since it was read (CERT-2).

use std::collections::BTreeMap;

use asya_shared::names::{MANAGED_BY, annotation, label, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};

use crate::change::Change;
use crate::data::Data;
use crate::parsed_secret::ParsedSecret;
use crate::secret::{TYPE, TlsSecret};

/// Why the Secret was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A Secret changed since it was read: both must be read again, and the step decided again.
    #[error("the Secret was changed concurrently")]
    Conflict,
    /// The API server failed or refused the request.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// Access to both Secrets.
#[derive(Clone)]
pub struct Store {
    api: Api<TlsSecret>,
    name: String,
}

/// Both Secrets, as last read or written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// The Secret with the webhook's serving certificate, if it exists.
    pub serving_secret: Option<TlsSecret>,
    /// The Secret with the CA keys, if it exists.
    pub ca_secret: Option<TlsSecret>,
}

/// Name of the Secret with the CA keys, which belongs to the webhook's Secret `name`.
#[must_use]
pub fn ca_secret_name(name: &str) -> String {
    format!("{name}-authority")
}

impl Stored {
    /// The data of both Secrets.
    #[must_use]
    pub fn data(&self) -> Data {
        let server = self
            .serving_secret
            .as_ref()
            .map(|secret| secret.data.clone());
        let server = server.unwrap_or_default();
        match &self.ca_secret {
            Some(ca) => server.with_ca_keys(&ca.data),
            None => server,
        }
    }

    /// Parses and validates both Secrets.
    #[must_use]
    pub fn parsed(&self) -> ParsedSecret {
        let metadata = self.serving_secret.as_ref().map(|it| &it.metadata);
        let annotations = metadata.and_then(|it| it.annotations.as_ref());
        let since = annotations.and_then(|all| all.get(annotation::AUTHORITY_SINCE));
        ParsedSecret::read(&self.data(), since.map(String::as_str))
    }

    /// Whether the webhook's Secret is free of CA keys, so that the webhook cannot read them.
    #[must_use]
    pub fn ca_keys_are_separate(&self) -> bool {
        self.serving_secret
            .as_ref()
            .is_none_or(|secret| !secret.data.has_ca_keys())
    }

    /// Whether each existing Secret has the owner reference `owner`; always true without one.
    #[must_use]
    pub fn has_owner(&self, owner: Option<&OwnerReference>) -> bool {
        let mut both = self.serving_secret.iter().chain(&self.ca_secret);
        both.all(|secret| {
            let mut owners = secret.metadata.owner_references.iter().flatten();
            owner.is_none_or(|owner| owners.any(|existing| existing == owner))
        })
    }
}

impl Store {
    /// Access to the Secret `name` and the one with its CA keys. `client` must be fenced, so that only the leader
    /// writes.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }

    /// Reads both Secrets.
    ///
    /// # Errors
    /// If a request fails or is refused.
    pub async fn read(&self) -> kube::Result<Stored> {
        Ok(Stored {
            serving_secret: self.api.get_opt(&self.name).await?,
            ca_secret: self.api.get_opt(&ca_secret_name(&self.name)).await?,
        })
    }

    /// Writes each Secret that differs, if it is still as in `previous`, and returns both as written. Sets `owner` as
    /// their owner reference; without it, keeps existing owners. Writes the CA keys first, so that the serving Secret
    /// never names a CA whose key is not stored.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if one of them has changed in the meantime.
    pub async fn write(
        &self,
        previous: &Stored,
        change: Change,
        owner: Option<&OwnerReference>,
    ) -> Result<Stored, WriteError> {
        let (serving_data, ca_keys) = change.data.split_off_ca_keys();
        let name = ca_secret_name(&self.name);
        let mut keys = secret_to_write(previous.ca_secret.as_ref(), &name, KEYS_TYPE, owner);
        keys.data = ca_keys;
        let mut leaf = secret_to_write(previous.serving_secret.as_ref(), &self.name, TYPE, owner);
        leaf.data = serving_data;
        let annotations = leaf.metadata.annotations.get_or_insert_default();
        match change.since {
            Some(since) => {
                let since = format!("{since:.0}");
                annotations.insert(annotation::AUTHORITY_SINCE.to_owned(), since);
            }
            None => drop(annotations.remove(annotation::AUTHORITY_SINCE)),
        }
        if annotations.is_empty() {
            leaf.metadata.annotations = None;
        }
        Ok(Stored {
            ca_secret: Some(self.put(&name, previous.ca_secret.as_ref(), keys).await?),
            serving_secret: Some(
                self.put(&self.name, previous.serving_secret.as_ref(), leaf)
                    .await?,
            ),
        })
    }

    async fn put(
        &self,
        name: &str,
        previous: Option<&TlsSecret>,
        secret: TlsSecret,
    ) -> Result<TlsSecret, WriteError> {
        if previous == Some(&secret) {
            return Ok(secret);
        }
        let params = PostParams {
            field_manager: Some(manager::CERTS.to_owned()),
            ..PostParams::default()
        };
        let written = match previous {
            Some(previous) if is_immutable(previous, &secret) => {
                match self.delete(name, previous).await {
                    Ok(()) => self.api.create(&params, &as_new(secret)).await,
                    Err(error) => Err(error),
                }
            }
            Some(_) => self.api.replace(name, &params, &secret).await,
            None => self.api.create(&params, &secret).await,
        };
        written.map_err(|error| match error {
            kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => {
                WriteError::Conflict
            }
            // The Secret was deleted in the meantime. On create, not found means that the namespace does not exist.
            kube::Error::Api(status) if status.is_not_found() && previous.is_some() => {
                WriteError::Conflict
            }
            other => WriteError::Api(other),
        })
    }

    /// Deletes a Secret if it has not changed since it was read.
    async fn delete(&self, name: &str, previous: &TlsSecret) -> kube::Result<()> {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: previous.metadata.uid.clone(),
            resource_version: previous.metadata.resource_version.clone(),
        });
        self.api.delete(name, &params).await.map(drop)
    }
}

/// Whether the API server refuses this change because the Secret is immutable. Metadata can still change.
fn is_immutable(previous: &TlsSecret, secret: &TlsSecret) -> bool {
    previous.immutable == Some(true) && previous.data != secret.data
}

/// The Secret without the identity of the deleted one, and mutable: otherwise each renewal would have to delete it.
fn as_new(secret: TlsSecret) -> TlsSecret {
    TlsSecret {
        metadata: ObjectMeta {
            name: secret.metadata.name,
            namespace: secret.metadata.namespace,
            labels: secret.metadata.labels,
            annotations: secret.metadata.annotations,
            owner_references: secret.metadata.owner_references,
            ..ObjectMeta::default()
        },
        immutable: None,
        ..secret
    }
}

/// Not `kubernetes.io/tls`, because it holds no serving certificate.
const KEYS_TYPE: &str = "Opaque";

/// Returns the existing Secret, or a new one, with this owner reference.
fn secret_to_write(
    previous: Option<&TlsSecret>,
    name: &str,
    kind: &str,
    owner: Option<&OwnerReference>,
) -> TlsSecret {
    let mut secret = previous.cloned().unwrap_or_else(|| new_secret(name, kind));
    if let Some(owner) = owner {
        let owners = secret.metadata.owner_references.get_or_insert_default();
        if !owners.contains(owner) {
            owners
                .retain(|existing| (&existing.kind, &existing.name) != (&owner.kind, &owner.name));
            owners.push(owner.clone());
        }
    }
    secret
}

fn new_secret(name: &str, kind: &str) -> TlsSecret {
    let labels = [
        (label::MANAGED_BY, MANAGED_BY),
        (label::COMPONENT, "webhook"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    TlsSecret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        kind: Some(kind.to_owned()),
        ..TlsSecret::default()
    }
}

impl TlsSecret {
    /// Parses and validates this Secret alone.
    #[must_use]
    pub fn parsed(&self) -> ParsedSecret {
        let annotations = self.metadata.annotations.as_ref();
        let since = annotations.and_then(|all| all.get(annotation::AUTHORITY_SINCE));
        ParsedSecret::read(&self.data, since.map(String::as_str))
    }
}
