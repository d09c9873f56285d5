//! Small records of watched objects, projected while the API server's response is decoded: a pod takes a few hundred
//! bytes as a record and 165 kB as a tree of JSON values.
//!
//! Decoding must not fail, because one bad object would fail every list of its kind. So only fields that the API server
//! guarantees are required, and free-form user input stays raw text.

mod actor;
mod autoscaler_target;
mod child;
mod condition;
mod config_map;
mod constraint;
mod crd;
mod event;
mod fingerprint;
mod foreign;
mod hpa;
mod keda;
mod metadata;
mod owner_role;
mod pod;
mod scaled_object;
mod uninjected_pod;
mod webhook_configuration;
mod webhook_facts;
mod workload;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

pub use actor::{ActorRecord, FOREGROUND_DELETION, ORPHAN};
pub use asya_shared::key::Key;
pub use autoscaler_target::AutoscalerTarget;
pub use child::ChildRecord;
pub use config_map::ConfigMapRecord;
pub use constraint::{LimitRangeRecord, NamespaceRecord, QuotaRecord};
pub use crd::{CrdNameRecord, CrdRecord};
pub use event::{CreationFailureRecord, PodCreator, PodEventRecord, StatefulSetFailureRecord};
pub use fingerprint::{Fingerprint, applied_by};
pub use foreign::{ForeignRecord, ProjectedForeign};
pub use hpa::{HpaRecord, ScalingInactive};
pub use keda::{ScaledObject, TriggerAuthentication};
pub use metadata::{Controller, LastApplied, Metadata, RawMetadata};
pub use owner_role::OwnerRoleRecord;
pub use pod::{PodRecord, Problem, ProblemClass, UNFINISHED};
pub use scaled_object::{KedaReady, ScaledObjectRecord, ScalingPause};
pub use uninjected_pod::{Labels, TargetPod, UninjectedPodRecord};
pub use webhook_configuration::{Content, WebhookConfiguration, WebhookConfigurationRecord};
pub use webhook_facts::WebhookFactsRecord;
pub use workload::{ReplicaFailure, TypedWorkload, WorkloadRecord, is_kubectl_or_helm};

/// Actors to enqueue when an object changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueue {
    Actor(Key),
    /// Every actor in a namespace.
    Namespace(Arc<str>),
    AllActors,
    Nothing,
}

impl Enqueue {
    /// The actor that owns the object, or else the one that its label names.
    fn owner_of(metadata: &Metadata, label: Option<&str>) -> Self {
        let owner = metadata.controller.as_ref();
        let owner = owner.filter(|owner| &*owner.kind == "AsyncActor");
        match owner.map(|owner| &*owner.name).or(label) {
            Some(actor) => Self::Actor(Key::new(&metadata.key.namespace, actor)),
            None => Self::Nothing,
        }
    }
}

/// The fields of a watched object that reconciles need. Records are equal if their difference needs no reconcile.
pub trait Record: fmt::Debug + PartialEq + Send + Sync + Sized + 'static {
    /// Kubernetes kind of the object.
    type Kind: Resource<DynamicType = ()>;
    /// Decoded fields, borrowed from the API server's response.
    type Raw<'de>: Deserialize<'de>;
    /// Whether only metadata is requested.
    const METADATA_ONLY: bool = false;
    /// Whether stores index the records by namespace.
    const BY_NAMESPACE: bool = false;

    /// Name in logs and metrics: the kind, unless it has several watches.
    fn kind_name() -> Cow<'static, str> {
        Self::Kind::kind(&())
    }
    /// Builds the record.
    fn project(raw: Self::Raw<'_>) -> Self;
    /// The metadata that every record has.
    fn metadata(&self) -> &Metadata;
    /// Actors to enqueue when this object changes. By default none: where the object does not name its actors, the sink
    /// of its watch finds them, such as in the index of bindings.
    fn to_enqueue(&self) -> Enqueue {
        Enqueue::Nothing
    }
    /// This version of an object, with what only `other`, another version of the same object, says and what holds as
    /// long as the object exists. `None` if that is nothing.
    fn inherit(&self, _other: &Self) -> Option<Self> {
        None
    }
    /// Whether its store counts it among the active ones of its namespace.
    fn is_active(&self) -> bool {
        true
    }
    /// Whether the watch of the kind selects the object, so that later changes and its deletion are observed.
    fn is_watched(&self) -> bool {
        true
    }
}

/// Record of an object that we apply.
pub trait AppliedRecord: Record {
    /// Field manager of our applies.
    const MANAGER: &'static str;
    /// Traces of our last apply, which show drift.
    fn last_applied(&self) -> &LastApplied;
}

/// Object of a watch event or a list: the metadata that kube's watcher needs, and the record.
#[derive(Debug)]
pub struct Projected<R> {
    meta: ObjectMeta,
    pub record: Arc<R>,
}

impl<R> Clone for Projected<R> {
    fn clone(&self) -> Self {
        Self {
            meta: self.meta.clone(),
            record: Arc::clone(&self.record),
        }
    }
}

impl<'de, R: Record> Deserialize<'de> for Projected<R> {
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

impl<R: Record> Resource for Projected<R> {
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
