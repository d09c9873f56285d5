//! The two Secrets at the API server: read, and written only where they were read last (CERT-2).

use std::collections::BTreeMap;

use asya_shared::names::{MANAGED_BY, annotation, label, manager};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::bundle::Bundle;
use crate::change::Change;
use crate::data::Data;
use crate::secret::{TYPE, TlsSecret};

/// Why the Secret was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// One is not as it was read any more: read both again, and decide again.
    #[error("the Secret changed meanwhile")]
    Conflict,
    /// The API server fails or refuses.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The Secrets' place.
#[derive(Clone)]
pub struct Store {
    api: Api<TlsSecret>,
    name: String,
}

/// Both Secrets, as they were read or written last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// What the webhook serves by; none if it is not there.
    pub server: Option<TlsSecret>,
    /// The keys of the authorities; none if it is not there.
    pub authority: Option<TlsSecret>,
}

/// The name of the Secret with the authorities' keys, beside the webhook's of this name.
#[must_use]
pub fn authority_secret(name: &str) -> String {
    format!("{name}-authority")
}

impl Stored {
    /// What both hold.
    #[must_use]
    pub fn data(&self) -> Data {
        let server = self.server.as_ref().map(|it| it.data.clone());
        let server = server.unwrap_or_default();
        match &self.authority {
            Some(authority) => server.with(&authority.data),
            None => server,
        }
    }

    /// What both say, judged.
    #[must_use]
    pub fn bundle(&self) -> Bundle {
        let metadata = self.server.as_ref().map(|it| &it.metadata);
        let annotations = metadata.and_then(|it| it.annotations.as_ref());
        let since = annotations.and_then(|all| all.get(annotation::AUTHORITY_SINCE));
        Bundle::read(&self.data(), since.map(String::as_str))
    }

    /// Whether the webhook can read no authority's key.
    #[must_use]
    pub fn is_split(&self) -> bool {
        self.server.as_ref().is_none_or(|it| it.data.is_split())
    }

    /// Whether those that are there go with this owner.
    #[must_use]
    pub fn goes_with(&self, owner: Option<&OwnerReference>) -> bool {
        let mut both = self.server.iter().chain(&self.authority);
        both.all(|secret| {
            let mut owners = secret.metadata.owner_references.iter().flatten();
            owner.is_none_or(|owner| owners.any(|it| it == owner))
        })
    }
}

impl Store {
    /// The Secret of this name, and the one beside it. `client` passes the fence: only the leader writes.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
        }
    }

    /// Both as they are now.
    ///
    /// # Errors
    /// When the API server fails or refuses.
    pub async fn read(&self) -> kube::Result<Stored> {
        Ok(Stored {
            server: self.api.get_opt(&self.name).await?,
            authority: self.api.get_opt(&authority_secret(&self.name)).await?,
        })
    }

    /// Writes what changes, if both still are as they were `before`, and answers them as they are then. From now on they
    /// go with `owner`; without one, with whom they went before. The keys are written first: what the webhook serves by
    /// never says that a key signs which is nowhere.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when one is not as it was.
    pub async fn write(
        &self,
        before: &Stored,
        change: Change,
        owner: Option<&OwnerReference>,
    ) -> Result<Stored, WriteError> {
        let (server, authority) = change.data.split();
        let name = authority_secret(&self.name);
        let mut keys = next(before.authority.as_ref(), &name, KEYS_TYPE, owner);
        keys.data = authority;
        let mut leaf = next(before.server.as_ref(), &self.name, TYPE, owner);
        leaf.data = server;
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
            authority: Some(self.put(&name, before.authority.as_ref(), keys).await?),
            server: Some(self.put(&self.name, before.server.as_ref(), leaf).await?),
        })
    }

    async fn put(
        &self,
        name: &str,
        before: Option<&TlsSecret>,
        secret: TlsSecret,
    ) -> Result<TlsSecret, WriteError> {
        if before == Some(&secret) {
            return Ok(secret);
        }
        let params = PostParams {
            field_manager: Some(manager::CERTS.to_owned()),
            ..PostParams::default()
        };
        let written = match before {
            Some(_) => self.api.replace(name, &params, &secret).await,
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
}

/// No server's certificate is in it.
const KEYS_TYPE: &str = "Opaque";

/// The Secret as it was, or a first one, with this owner.
fn next(
    before: Option<&TlsSecret>,
    name: &str,
    kind: &str,
    owner: Option<&OwnerReference>,
) -> TlsSecret {
    let mut secret = before.cloned().unwrap_or_else(|| first(name, kind));
    if let Some(owner) = owner {
        let owners = secret.metadata.owner_references.get_or_insert_default();
        if !owners.contains(owner) {
            owners.retain(|it| (&it.kind, &it.name) != (&owner.kind, &owner.name));
            owners.push(owner.clone());
        }
    }
    secret
}

fn first(name: &str, kind: &str) -> TlsSecret {
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
    /// What it says by itself, judged.
    #[must_use]
    pub fn bundle(&self) -> Bundle {
        let annotations = self.metadata.annotations.as_ref();
        let since = annotations.and_then(|all| all.get(annotation::AUTHORITY_SINCE));
        Bundle::read(&self.data, since.map(String::as_str))
    }
}
