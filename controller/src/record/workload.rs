//! Workload record, shared by `Deployment` and `StatefulSet`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use asya_shared::api::WorkloadKind;
use asya_shared::names::{annotation, label, manager};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::Resource;
use serde::Deserialize;

use super::condition::RawCondition;
use super::{Enqueue, LastApplied, Metadata, RawMetadata, Record};

/// A workload that we created, or one that occupies a name that we need.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadRecord {
    pub kind: WorkloadKind,
    pub metadata: Metadata,
    /// Actor named by the label; the controller owner reference takes precedence.
    pub actor: Option<Box<str>>,
    /// Traces of our last apply.
    pub last_applied: LastApplied,
    /// Whether we own `spec.replicas` (WRK-3).
    pub owns_replicas: bool,
    /// Whether kubectl or Helm wrote fields that have not been taken over yet (FW-22).
    pub has_kubectl_helm_fields: bool,
    /// Pod template hash, which identifies pods of the current template.
    pub template_hash: Option<Box<str>>,
    pub generation: i64,
    pub desired: i32,
    /// Generation that the counts below refer to.
    pub observed_generation: i64,
    /// Existing pods.
    pub total: i32,
    pub ready: i32,
    /// Whether pods of an earlier revision still exist.
    pub rolling: bool,
    /// Why pods cannot be created.
    pub replica_failure: Option<ReplicaFailure>,
}

/// Condition `ReplicaFailure` of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFailure {
    pub reason: Box<str>,
    /// Message of the API server.
    pub message: Box<str>,
}

impl ReplicaFailure {
    /// Whether a resource quota rejects the pods.
    pub fn is_quota(&self) -> bool {
        self.message.contains("exceeded quota")
    }
}

/// Workload kinds that the operator creates.
pub trait WorkloadType:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static
{
    /// The kind as an actor's spec names it.
    const KIND: WorkloadKind;
}

impl WorkloadType for Deployment {
    const KIND: WorkloadKind = WorkloadKind::Deployment;
}

impl WorkloadType for StatefulSet {
    const KIND: WorkloadKind = WorkloadKind::StatefulSet;
}

/// Workload record, typed by the kind that its watch lists.
pub struct TypedWorkload<K> {
    pub record: Arc<WorkloadRecord>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for TypedWorkload<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.fmt(f)
    }
}

impl<K> PartialEq for TypedWorkload<K> {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

/// Decoded fields of a workload.
#[derive(Deserialize)]
pub struct RawWorkload<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSpec<'a> {
    replicas: Option<i32>,
    #[serde(borrow)]
    template: RawTemplate<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTemplate<'a> {
    #[serde(borrow)]
    metadata: Option<RawTemplateMetadata<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTemplateMetadata<'a> {
    #[serde(borrow)]
    annotations: Option<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl RawTemplate<'_> {
    fn hash(&self) -> Option<Box<str>> {
        let annotations = self.metadata.as_ref()?.annotations.as_ref()?;
        let hash = annotations.get(annotation::TEMPLATE_HASH)?;
        Some(hash.as_ref().into())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    observed_generation: i64,
    replicas: i32,
    ready_replicas: i32,
    updated_replicas: i32,
    #[serde(borrow)]
    current_revision: Cow<'a, str>,
    #[serde(borrow)]
    update_revision: Cow<'a, str>,
    #[serde(borrow)]
    conditions: Vec<RawCondition<'a>>,
}

impl RawStatus<'_> {
    fn is_rolling(&self, kind: WorkloadKind) -> bool {
        match kind {
            WorkloadKind::Deployment => self.replicas > self.updated_replicas,
            // A `StatefulSet` counts any terminating pods in `replicas` but not in `updatedReplicas`, so compare
            // revisions. The update revision becomes the current one once every pod has it and is ready.
            WorkloadKind::StatefulSet => self.current_revision != self.update_revision,
        }
    }
}

impl WorkloadRecord {
    fn project(raw: &RawWorkload<'_>, kind: WorkloadKind) -> Self {
        let mut conditions = raw.status.conditions.iter();
        let failure = conditions.find(|condition| condition.is("ReplicaFailure", "True"));
        let applied = raw.metadata.applied_by(manager::WORKLOAD);
        Self {
            kind,
            metadata: raw.metadata.to_metadata(),
            actor: raw.metadata.label(label::ACTOR).map(Into::into),
            last_applied: raw.metadata.last_applied(manager::WORKLOAD),
            owns_replicas: applied.is_some_and(|fields| fields.replicas),
            has_kubectl_helm_fields: raw.metadata.is_written_by(is_kubectl_or_helm)
                && raw.metadata.annotation(annotation::RECLAIMED).as_deref() != Some("true"),
            template_hash: raw.spec.template.hash(),
            generation: raw.metadata.generation,
            desired: raw.spec.replicas.unwrap_or(1),
            observed_generation: raw.status.observed_generation,
            total: raw.status.replicas,
            ready: raw.status.ready_replicas,
            rolling: raw.status.is_rolling(kind),
            replica_failure: failure.map(|condition| ReplicaFailure {
                reason: condition.reason.as_ref().into(),
                message: condition.message.as_ref().into(),
            }),
        }
    }
}

impl<K: WorkloadType> Record for TypedWorkload<K> {
    type Kind = K;
    type Raw<'de> = RawWorkload<'de>;

    fn project(raw: RawWorkload<'_>) -> Self {
        let record = Arc::new(WorkloadRecord::project(&raw, K::KIND));
        Self {
            record,
            kind: PhantomData,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.record.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::owner_of(&self.record.metadata, self.record.actor.as_deref())
    }

    fn is_watched(&self) -> bool {
        self.record.metadata.managed
    }
}

/// Whether a field manager is a command-line tool other than `kubectl rollout`, whose restarts must be kept (WRK-4).
pub fn is_kubectl_or_helm(manager: &str) -> bool {
    let is_kubectl = manager == "kubectl" || manager.starts_with("kubectl-");
    (is_kubectl && manager != "kubectl-rollout") || manager.eq_ignore_ascii_case("helm")
}
