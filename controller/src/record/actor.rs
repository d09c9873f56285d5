//! `AsyncActor` record.

use std::sync::Arc;

use asya_shared::api::{
    AsyncActor, AsyncActorStatus, BindingConflict, PodCounts, QueueDeletionPolicy, Timeout,
    WorkloadRef,
};
use asya_shared::claims::QueueName;
use asya_shared::names::annotation;
use asya_shared::validate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Enqueue, Metadata, RawMetadata, Record};

/// An `AsyncActor` whose spec and status stay raw JSON, so that one undecodable object cannot fail the whole list.
#[derive(Clone, Debug)]
pub struct ActorRecord {
    pub metadata: Metadata,
    pub generation: i64,
    pub created: Option<Time>,
    pub deleted: Option<Time>,
    /// Transport named by the spec; `None` if the spec does not decode.
    pub transport: Option<Box<str>>,
    /// The bound workload; `None` if the operator creates the workload, or if the spec does not decode.
    pub binds_to: Option<WorkloadRef>,
    /// Effective `spec.timeout`; `None` if it does not decode.
    pub timeout: Option<Timeout>,
    pub queue_policy: QueueDeletionPolicy,
    /// Status fields that are read outside the actor's own reconcile.
    pub told: StatusView,
    /// Fields that the metrics count.
    pub counted: Counted,
    /// Finalizers, in stored order.
    pub finalizers: Vec<Box<str>>,
    /// Annotations that control reconciliation.
    pub annotations: Annotations,
    /// `spec` as received.
    pub spec: Option<Arc<RawValue>>,
    /// `status` as stored.
    pub status: Option<Arc<RawValue>>,
}

/// Status and unrelated metadata are left out of the comparison, so that changing them does not enqueue a reconcile
/// (FW-3).
impl PartialEq for ActorRecord {
    fn eq(&self, other: &Self) -> bool {
        (
            &self.metadata,
            self.generation,
            &self.finalizers,
            &self.annotations,
        ) == (
            &other.metadata,
            other.generation,
            &other.finalizers,
            &other.annotations,
        )
    }
}

impl ActorRecord {
    /// Whether its pods should receive messages. They still do while deletion waits for the queue to drain (QUE-41).
    pub fn works(&self) -> bool {
        let waits =
            self.queue_policy.waits_until_empty() && self.told.queue_released_since.is_none();
        !self.metadata.deleting || waits
    }

    /// Decodes the full status; returns the default if it does not decode.
    pub fn told_status(&self) -> AsyncActorStatus {
        let raw = self.status.as_ref();
        let read = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        read.unwrap_or_default()
    }
}

/// Status fields that are read outside the actor's own reconcile. Default if the status does not decode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusView {
    /// Last verified queue.
    pub queue: Option<QueueName>,
    /// Queues that the actor used before.
    pub retired_queues: Box<[QueueName]>,
    /// Desired number of pods.
    pub desired_replicas: i32,
    /// Since when deletion no longer waits for the queue to drain.
    pub queue_released_since: Option<Time>,
}

/// Fields that the metrics count, decoded once per change because a scrape visits every actor (OPS-24). Default if the
/// status does not decode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// The overall `status.status`, as the STATUS column prints it.
    pub status: Box<str>,
    /// Pod counts of a binding.
    pub pods: Option<PodCounts>,
    /// Whether the rollout is halted or stalled.
    pub rollout: Rollout,
    /// Fields in contention with another field manager.
    pub conflicts: Box<[BindingConflict]>,
    /// Whether the spec does not decode. Checked only if the status suggests it, because decoding the spec costs more
    /// than everything else here.
    #[serde(skip)]
    pub undecodable: bool,
}

/// Progress of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Rollout {
    /// The rollout is halted.
    pub halted: bool,
    /// No further pod is replaced until a replacement becomes ready.
    pub stalled: bool,
}

impl Counted {
    fn of(spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
        let counted: Self = read(status).unwrap_or_default();
        let spec = spec.map_or("null", RawValue::get);
        Self {
            undecodable: &*counted.status == "WorkloadError" && validate::decode(spec).is_err(),
            ..counted
        }
    }
}

/// Actor annotations that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an annotation of its own"
)]
pub struct Annotations {
    /// Write nothing except what a deletion needs.
    pub paused: bool,
    /// Leave applied objects alone until the spec changes (FW-21).
    pub once: bool,
    /// Keep the queue when the actor is deleted. Any non-empty value except `false` counts, because deleted messages
    /// cannot be recovered.
    pub skip_queue_deletion: bool,
    /// Take ownership, once, of workload fields written by kubectl or Helm (FW-22).
    pub reclaim_fields: bool,
    /// Recreate a workload that cannot be updated in place (FW-22).
    pub allow_recreate: bool,
    /// Replace every target pod that is outdated in any part (ROLL-8).
    pub roll_now: bool,
    /// Complete the deletion even if pods still run the sidecar (BIND-44).
    pub skip_unbind: bool,
    /// IAM role of the actor's pods (SA-1).
    pub role_arn: Option<Box<str>>,
    /// Human-readable description of invalid values above (FW-21).
    pub unknown: Option<Box<str>>,
    /// Cluster to adopt the queue from (QUE-33).
    pub adopt_queue_from: Option<Box<str>>,
}

impl Annotations {
    /// Cluster to adopt the queue from; `None` if the annotation is blank.
    pub fn adopts(&self) -> Option<&str> {
        let cluster = self.adopt_queue_from.as_deref().map(str::trim);
        cluster.filter(|cluster| !cluster.is_empty())
    }
}

/// Decoded fields of an `AsyncActor`.
#[derive(Deserialize)]
pub struct RawActor<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    spec: Option<Arc<RawValue>>,
    status: Option<Arc<RawValue>>,
}

/// The few spec fields that queue claims and health checks need, since they read every actor often.
#[derive(Deserialize)]
struct Spec {
    transport: Box<str>,
    timeout: Option<Box<RawValue>>,
    queue: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    workload: Option<IgnoredAny>,
    workload_ref: Option<WorkloadRef>,
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl Record for ActorRecord {
    type Kind = AsyncActor;
    type Raw<'de> = RawActor<'de>;

    fn project(raw: RawActor<'_>) -> Self {
        let says = |name, wanted: &str| {
            let value = raw.metadata.annotations.get(name);
            value.is_some_and(|value| value == wanted)
        };
        let is_set = |name| {
            let value = raw.metadata.annotations.get(name);
            value.is_some_and(|value| !value.is_empty() && value != "false")
        };
        let unknown = validate::annotations(|name| {
            let value = raw.metadata.annotations.get(name);
            value.map(AsRef::as_ref)
        });
        let spec: Option<Spec> = read(raw.spec.as_deref());
        let timeout = spec.as_ref().map(|spec| spec.timeout.as_deref());
        Self {
            metadata: raw.metadata.keep(),
            generation: raw.metadata.generation,
            annotations: Annotations {
                paused: says(annotation::PAUSED, "true") || says(annotation::RECONCILE, "Paused"),
                once: says(annotation::RECONCILE, "Once"),
                skip_queue_deletion: is_set(annotation::SKIP_QUEUE_DELETION),
                reclaim_fields: says(annotation::RECLAIM_FIELDS, "true"),
                allow_recreate: says(annotation::ALLOW_RECREATE, "true"),
                roll_now: raw.metadata.annotation(annotation::ROLL_NOW).is_some(),
                skip_unbind: says(annotation::SKIP_UNBIND, "true"),
                role_arn: raw.metadata.annotation(annotation::ROLE_ARN),
                unknown: (!unknown.is_empty()).then(|| validate::joined(&unknown).into()),
                adopt_queue_from: raw.metadata.annotation(annotation::ADOPT_QUEUE_FROM),
            },
            created: raw.metadata.creation_timestamp,
            deleted: raw.metadata.deletion_timestamp,
            timeout: timeout
                .and_then(|raw| raw.map_or(Some(Timeout::default()), |raw| read(Some(raw)))),
            queue_policy: QueueDeletionPolicy::of_raw(
                spec.as_ref().and_then(|spec| spec.queue.as_ref()),
            ),
            transport: spec.map(|spec| spec.transport),
            binds_to: read::<Mode>(raw.spec.as_deref())
                .filter(|mode| mode.workload.is_none())
                .and_then(|mode| mode.workload_ref),
            told: read(raw.status.as_deref()).unwrap_or_default(),
            counted: Counted::of(raw.spec.as_deref(), raw.status.as_deref()),
            finalizers: raw.metadata.finalizers,
            spec: raw.spec,
            status: raw.status,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn concerns(&self) -> Enqueue {
        Enqueue::Actor(self.metadata.key.clone())
    }
}
