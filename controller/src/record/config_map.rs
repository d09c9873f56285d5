//! The record of a `ConfigMap` of ours.

use asya_shared::names::{annotation, manager};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;

use super::{Concerns, Fingerprint, Metadata, RawMetadata, Record};

/// A `ConfigMap` of ours: its data is judged by hash and ownership, not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigMapRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// Hash of the object as it was last sent.
    pub applied_hash: Option<Box<str>>,
    /// What we own of it.
    pub fingerprint: Option<Fingerprint>,
    /// It outlives the actors that needed it (FW-23).
    pub orphaned: bool,
}

/// The decoded fields of a `ConfigMap`.
#[derive(Deserialize)]
pub struct RawConfigMap<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl Record for ConfigMapRecord {
    type Kind = ConfigMap;
    type Raw<'de> = RawConfigMap<'de>;

    fn project(raw: RawConfigMap<'_>) -> Self {
        Self {
            metadata: raw.metadata.keep(),
            applied_hash: raw.metadata.annotation(annotation::APPLIED_HASH),
            fingerprint: raw
                .metadata
                .applied_by(manager::RUNTIME)
                .map(|fields| fields.fingerprint),
            orphaned: raw.metadata.annotation(annotation::ORPHANED).as_deref() == Some("true"),
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn concerns(&self) -> Concerns {
        Concerns::Namespace(self.metadata.key.namespace.clone())
    }
}
