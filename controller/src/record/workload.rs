//! The record of a workload of ours, the same for both kinds.

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

/// A workload that we created, or one of a name that we need.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadRecord {
    /// Deployment or `StatefulSet`.
    pub kind: WorkloadKind,
    /// Name, uid, version.
    pub metadata: Metadata,
    /// The actor that it belongs to by label; its controller ownerReference decides.
    pub actor: Option<Box<str>>,
    /// What is left of our last apply.
    pub last: LastApplied,
    /// Whether its number of replicas is ours (WRK-3).
    pub owns_replicas: bool,
    /// Whether kubectl or Helm wrote fields of it that have not been reclaimed (FW-22).
    pub reclaimable: bool,
    /// Hash of its template, by which its newest pods are known.
    pub template_hash: Option<Box<str>>,
    /// Rises with each change of the spec.
    pub generation: i64,
    /// Replicas asked for.
    pub desired: i32,
    /// The generation that the counts below are of.
    pub observed_generation: i64,
    /// Pods that exist.
    pub total: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Whether pods of an earlier revision are left.
    pub rolling: bool,
    /// Why pods cannot be created.
    pub replica_failure: Option<ReplicaFailure>,
}

/// Condition `ReplicaFailure` of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFailure {
    /// Machine-readable cause.
    pub reason: Box<str>,
    /// The API server's text.
    pub message: Box<str>,
}

impl ReplicaFailure {
    /// Whether a quota refuses the pods.
    pub fn is_quota(&self) -> bool {
        self.message.contains("exceeded quota")
    }
}

/// The kinds of workloads that we create.
pub trait WorkloadType:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static
{
    /// The kind, as an actor's spec names it.
    const KIND: WorkloadKind;
}

impl WorkloadType for Deployment {
    const KIND: WorkloadKind = WorkloadKind::Deployment;
}

impl WorkloadType for StatefulSet {
    const KIND: WorkloadKind = WorkloadKind::StatefulSet;
}

/// A workload's record, as a watch of its kind shows it.
pub struct OfKind<K> {
    /// The record.
    pub record: Arc<WorkloadRecord>,
    kind: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for OfKind<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.fmt(f)
    }
}

impl<K> PartialEq for OfKind<K> {
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

/// The decoded fields of a workload.
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
            // It counts pods that go among all, and not among the updated ones, whatever they go for. Its revision
            // is the current one once every pod is of it and ready.
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
            metadata: raw.metadata.keep(),
            actor: raw.metadata.label(label::ACTOR).map(Into::into),
            last: raw.metadata.last_applied(manager::WORKLOAD),
            owns_replicas: applied.is_some_and(|fields| fields.replicas),
            reclaimable: raw.metadata.is_written_by(is_tool)
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

impl<K: WorkloadType> Record for OfKind<K> {
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

    fn concerns(&self) -> Enqueue {
        Enqueue::owner_of(&self.record.metadata, self.record.actor.as_deref())
    }

    fn is_watched(&self) -> bool {
        self.record.metadata.labelled
    }
}

/// Whether a field manager is a person's tool. A restart asked for by `kubectl rollout` stays (WRK-4).
pub fn is_tool(manager: &str) -> bool {
    let is_kubectl = manager == "kubectl" || manager.starts_with("kubectl-");
    (is_kubectl && manager != "kubectl-rollout") || manager.eq_ignore_ascii_case("helm")
}
