//! The record of an object that an actor binds to: another controller's, of which nothing is kept but its version.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::Deserialize;

use super::{Concerns, Metadata, RawMetadata, Record};

/// A target, seen by its metadata only (BIND-61).
pub struct TargetRecord<K> {
    /// Name, uid, version.
    pub metadata: Metadata,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for TargetRecord<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.metadata.fmt(f)
    }
}

/// What it says is read where its version has changed.
impl<K> PartialEq for TargetRecord<K> {
    fn eq(&self, other: &Self) -> bool {
        let version = |it: &Self| it.metadata.resource_version;
        self.metadata == other.metadata && version(self) == version(other)
    }
}

/// The decoded fields of a target.
#[derive(Deserialize)]
pub struct RawTarget<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl<K> Record for TargetRecord<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    type Kind = K;
    type Raw<'de> = RawTarget<'de>;
    const METADATA_ONLY: bool = true;

    fn project(raw: RawTarget<'_>) -> Self {
        Self {
            metadata: raw.metadata.keep(),
            kind: PhantomData,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Only an index of bindings knows.
    fn concerns(&self) -> Concerns {
        Concerns::Nobody
    }
}
