//! Record of a child object. Drift is detected by hash and field ownership, so its content is not kept.

use std::fmt;
use std::marker::PhantomData;

use asya_shared::names::{label, manager};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Resource;
use serde::Deserialize;

use super::keda::TriggerAuthentication;
use super::{AppliedRecord, Enqueue, LastApplied, Metadata, RawMetadata, Record};

/// An object that we created, or one that occupies a name that we need.
pub struct ChildRecord<K> {
    pub metadata: Metadata,
    /// Actor named by the label; the controller owner reference takes precedence.
    pub actor: Option<Box<str>>,
    /// Traces of our last apply.
    pub last_applied: LastApplied,
    kind: PhantomData<fn() -> K>,
}

/// Kinds of children whose content is not kept.
pub trait ChildType: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static {
    /// Field manager of our applies.
    const MANAGER: &'static str;
}

impl ChildType for TriggerAuthentication {
    const MANAGER: &'static str = manager::SCALED_OBJECT;
}

impl ChildType for ServiceAccount {
    const MANAGER: &'static str = manager::SERVICE_ACCOUNT;
}

impl<K> fmt::Debug for ChildRecord<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ChildRecord");
        debug.field("metadata", &self.metadata);
        debug.field("actor", &self.actor);
        debug.field("last_applied", &self.last_applied).finish()
    }
}

impl<K> PartialEq for ChildRecord<K> {
    fn eq(&self, other: &Self) -> bool {
        (&self.metadata, &self.actor, &self.last_applied)
            == (&other.metadata, &other.actor, &other.last_applied)
    }
}

/// Decoded metadata of a child.
#[derive(Deserialize)]
pub struct RawChild<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
}

impl<K: ChildType> Record for ChildRecord<K> {
    type Kind = K;
    type Raw<'de> = RawChild<'de>;

    fn project(raw: RawChild<'_>) -> Self {
        Self {
            metadata: raw.metadata.to_metadata(),
            actor: raw.metadata.label(label::ACTOR).map(Into::into),
            last_applied: raw.metadata.last_applied(K::MANAGER),
            kind: PhantomData,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::owner_of(&self.metadata, self.actor.as_deref())
    }

    fn is_watched(&self) -> bool {
        self.metadata.managed
    }
}

impl<K: ChildType> AppliedRecord for ChildRecord<K> {
    const MANAGER: &'static str = K::MANAGER;

    fn last_applied(&self) -> &LastApplied {
        &self.last_applied
    }
}

#[cfg(test)]
mod tests;
