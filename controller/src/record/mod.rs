//! Our own small records of the objects that we watch, projected while the API server's text is
//! decoded: a pod is a few hundred bytes here and 165 kB as a tree of JSON values.
//!
//! Decoding must not fail: one bad object would fail every list of its kind. So only what the API
//! server guarantees is required, and what users write freely stays raw text.

mod actor;
mod anchor;
mod bare_pod;
mod child;
mod condition;
mod config_map;
mod configuration;
mod constraint;
mod crd;
mod event;
mod fingerprint;
mod foreign;
mod hpa;
mod keda;
mod metadata;
mod pod;
mod scale_target;
mod scaled_object;
mod workload;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

pub use actor::ActorRecord;
pub use anchor::AnchorRecord;
pub use asya_shared::key::Key;
pub use bare_pod::{Labels, PodOfTarget, UninjectedPodRecord};
pub use child::ChildRecord;
pub use config_map::ConfigMapRecord;
pub use configuration::{Configuration, ConfigurationRecord, Content};
pub use constraint::{LimitRangeRecord, NamespaceRecord, QuotaRecord};
pub use crd::{CrdNameRecord, CrdRecord};
pub use event::{CreationFailureRecord, Maker, PodEventRecord, RefusalRecord};
pub use fingerprint::{Fingerprint, applied_by};
pub use foreign::{ForeignRecord, SeenForeign};
pub use hpa::{HpaRecord, Inactive};
pub use keda::{ScaledObject, TriggerAuthentication};
pub use metadata::{Controller, LastApplied, Metadata, RawMetadata};
pub use pod::{Class, PodRecord, Problem};
pub use scale_target::ScaleTarget;
pub use scaled_object::{KedaReady, ScaledObjectRecord};
pub use workload::{OfKind, ReplicaFailure, WorkloadRecord, is_tool};

/// Whom a changed object concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueue {
    /// One actor.
    Actor(Key),
    /// Every actor of a namespace.
    Namespace(Arc<str>),
    /// Every actor.
    Everybody,
    /// Nobody.
    Nobody,
}

impl Enqueue {
    /// The actor that owns an object, or else the one that its label names.
    fn owner_of(metadata: &Metadata, label: Option<&str>) -> Self {
        let owner = metadata.controller.as_ref();
        let owner = owner.filter(|owner| &*owner.kind == "AsyncActor");
        match owner.map(|owner| &*owner.name).or(label) {
            Some(actor) => Self::Actor(Key::new(&metadata.key.namespace, actor)),
            None => Self::Nobody,
        }
    }
}

/// What we keep of a watched object. Two of them are equal when nobody needs to look at the change.
pub trait Record: fmt::Debug + PartialEq + Send + Sync + Sized + 'static {
    /// The Kubernetes kind that it is a record of.
    type Kind: Resource<DynamicType = ()>;
    /// The fields that are decoded, borrowed from the API server's text.
    type Raw<'de>: Deserialize<'de>;
    /// Whether the API server is asked for nothing but metadata.
    const METADATA_ONLY: bool = false;

    /// What is watched, in logs and metrics: the kind, unless there are several watches of it.
    fn what() -> Cow<'static, str> {
        Self::Kind::kind(&())
    }
    /// Makes the record.
    fn project(raw: Self::Raw<'_>) -> Self;
    /// What all records have.
    fn metadata(&self) -> &Metadata;
    /// Whom a change of this object concerns.
    fn concerns(&self) -> Enqueue;
    /// Whether the watch of its kind shows it, and its end.
    fn is_watched(&self) -> bool {
        true
    }
}

/// A record of an object that we apply, which is judged by what is left of that.
pub trait AppliedRecord: Record {
    /// The field manager that we apply it as, and whose fields are looked at.
    const MANAGER: &'static str;
    /// What is left of our last apply.
    fn last(&self) -> &LastApplied;
}

/// An event's or an answer's object: what kube's watcher needs of it, and the record.
#[derive(Debug)]
pub struct Seen<R> {
    meta: ObjectMeta,
    /// The record.
    pub record: Arc<R>,
}

impl<R> Clone for Seen<R> {
    fn clone(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            record: Arc::clone(&self.record),
        }
    }
}

impl<'de, R: Record> Deserialize<'de> for Seen<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let record = R::project(R::Raw::deserialize(deserializer)?);
        let metadata = record.metadata();
        let meta = ObjectMeta {
            name: Some(metadata.key.name.to_string()),
            namespace: Some(metadata.key.namespace.to_string()),
            resource_version: Some(metadata.resource_version.to_string()),
            ..ObjectMeta::default()
        };
        Ok(Self {
            meta,
            record: Arc::new(record),
        })
    }
}

impl<R: Record> Resource for Seen<R> {
    type DynamicType = ();
    type Scope = <R::Kind as Resource>::Scope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        R::Kind::kind(&())
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        R::Kind::group(&())
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        R::Kind::version(&())
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        R::Kind::plural(&())
    }

    fn metadata_api() -> bool {
        R::METADATA_ONLY
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests;
