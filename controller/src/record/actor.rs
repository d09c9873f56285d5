//! `AsyncActor` record.

use std::sync::Arc;

use asya_shared::api::{
    AsyncActor, AsyncActorStatus, BindingRollout, ConflictStatus, PodCounts, QueueDeletionPolicy,
    Timeout, WorkloadRef,
};
use asya_shared::names::annotation;
use asya_shared::queue_claims::StatusQueue;
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
    pub status_view: StatusView,
    pub metric_fields: MetricFields,
    /// Finalizers, in stored order.
    pub finalizers: Vec<Box<str>>,
    /// Annotations that control reconciliation.
    pub annotations: Annotations,
    /// `spec` as received; `None` if it is too large to be kept in memory (VAL-22).
    pub spec: Option<Arc<RawValue>>,
    /// Size of `spec` as received, in bytes of JSON.
    pub spec_bytes: usize,
    /// The parts of the spec that a deletion needs, however large it is; default while the actor is not being deleted.
    pub deletion: DeletionFields,
    /// `status` as stored.
    pub status: Option<Arc<RawValue>>,
}

/// Equality ignores status and unrelated metadata, so that their changes do not enqueue a reconcile (FW-3).
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

/// The garbage collector's finalizer: while an actor has it, its children are deleted first.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";
/// The garbage collector's finalizer on an object deleted with propagation policy Orphan.
pub const ORPHAN: &str = "orphan";

impl ActorRecord {
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| **it == *finalizer)
    }

    /// Whether its pods should receive messages, which they also do until a deleted actor's queue is empty (QUE-41).
    pub fn receives_messages(&self) -> bool {
        let awaits_empty = self.queue_policy.waits_until_empty()
            && self.status_view.queue_released_since.is_none();
        !self.metadata.deleting || awaits_empty
    }

    /// Decodes the full status; returns the default if it does not decode.
    pub fn decode_status(&self) -> AsyncActorStatus {
        let raw = self.status.as_ref();
        let status = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        status.unwrap_or_default()
    }
}

/// Status fields that are read outside the actor's own reconcile. Default if the status does not decode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusView {
    /// Last verified queue.
    pub queue: Option<StatusQueue>,
    /// Whether the broker marks the queue as another's.
    pub queue_marked_for_other: bool,
    /// Queues that the actor used before.
    pub retired_queues: Box<[StatusQueue]>,
    /// Desired number of pods.
    pub desired_replicas: i32,
    /// Messages that wait in its queue, as last reported.
    pub queued_messages: Option<i64>,
    /// Messages that its pods are processing, as last reported.
    pub processing_messages: Option<i64>,
    /// Since when deletion no longer waits until the queue is empty.
    pub queue_released_since: Option<Time>,
    /// Whether its deletion has been found to be an orphaning one.
    pub orphaned: bool,
}

/// Fields that the metrics count, decoded once per change because a scrape visits every actor (OPS-24). Default if the
/// status does not decode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MetricFields {
    /// The overall `status.status`, as the STATUS column prints it.
    pub status: Box<str>,
    /// Pod counts of a binding.
    pub pods: Option<PodCounts>,
    /// Whether the rollout is halted or stalled.
    pub rollout: Rollout,
    /// Fields in contention with another field manager.
    pub conflicts: Box<[ConflictStatus]>,
    /// Whether the spec does not decode. Checked only if the status suggests it, because decoding the spec costs more
    /// than everything else here.
    #[serde(skip)]
    pub undecodable: bool,
}

/// The parts of the spec that a deletion needs. Read from the raw spec, because a spec that does not decode may still
/// say that its objects stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionFields {
    /// Whether `spec.deletionPolicy` or the propagation policy is `Orphan`, or was when an earlier version was read
    /// (FW-23).
    pub orphans: bool,
    /// Termination grace period of the pods, in seconds, if the spec sets one.
    pub grace_seconds: Option<u32>,
    /// Whether pods of a binding's target may be restarted to remove the sidecar (BIND-43).
    pub rollout: BindingRollout,
}

impl StatusView {
    /// Whether status reports messages in the queue.
    pub fn reports_messages(&self) -> bool {
        let counts = [self.queued_messages, self.processing_messages];
        counts.into_iter().flatten().any(|count| count > 0)
    }
}

impl DeletionFields {
    /// Also reads the finalizers: the API server adds one for the propagation policy, which the garbage collector
    /// removes. After that, the status says it.
    fn of(spec: Option<&RawValue>, finalizers: &[Box<str>], status: &StatusView) -> Self {
        let spec: Value = read(spec).unwrap_or_default();
        let is_orphaning = finalizers.iter().any(|it| **it == *ORPHAN);
        let number = |pointer| {
            let number = spec.pointer(pointer).and_then(Value::as_u64);
            number.and_then(|number| u32::try_from(number).ok())
        };
        let binding = &spec["binding"];
        // Strategy Template does not allow it: its fields would stay in the user's object.
        let waits = binding["rollout"] == "OnRestart" && binding["strategy"] != "Template";
        Self {
            rollout: if waits {
                BindingRollout::OnRestart
            } else {
                BindingRollout::Always
            },
            orphans: is_orphaning || status.orphaned || spec["deletionPolicy"] == "Orphan",
            grace_seconds: number("/workload/template/spec/terminationGracePeriodSeconds")
                .or_else(|| number("/timeout/gracefulShutdown").filter(|seconds| *seconds > 0)),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Rollout {
    /// As in [`RolloutStatus::halted`](asya_shared::api::RolloutStatus).
    pub halted: bool,
    /// As in [`RolloutStatus::stalled`](asya_shared::api::RolloutStatus).
    pub stalled: bool,
}

impl MetricFields {
    fn of(spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
        let fields: Self = read(status).unwrap_or_default();
        let spec = spec.map_or("null", RawValue::get);
        Self {
            undecodable: &*fields.status == "WorkloadError" && validate::decode(spec).is_err(),
            ..fields
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
    /// Write to applied objects only after a spec change (FW-21).
    pub once: bool,
    /// Keep the queue when the actor is deleted. Any non-empty value except `false` counts, because deleted messages
    /// cannot be recovered.
    pub skip_queue_deletion: bool,
    /// Take ownership, once, of workload fields written by kubectl or Helm (FW-22).
    pub reclaim_fields: bool,
    /// Recreate a workload that cannot be updated in place (FW-22).
    pub allow_recreate: bool,
    /// Replace every outdated target pod, whatever changed (ROLL-8).
    pub roll_now: bool,
    /// Complete the deletion even if pods still run the sidecar (BIND-44).
    pub skip_unbind: bool,
    /// IAM role of the actor's pods (SA-1).
    pub role_arn: Option<Box<str>>,
    /// Describes invalid values of these annotations (FW-21).
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

/// The few spec fields that queue claims and health checks need, because both read every actor often.
#[derive(Deserialize)]
struct Spec {
    transport: Box<str>,
    timeout: Option<Box<RawValue>>,
    queue: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMode {
    workload: Option<IgnoredAny>,
    workload_ref: Option<WorkloadRef>,
}

fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl Record for ActorRecord {
    type Kind = AsyncActor;
    type Raw<'de> = RawActor<'de>;
    const BY_NAMESPACE: bool = true;

    fn is_active(&self) -> bool {
        self.receives_messages()
    }

    /// The garbage collector's finalizer may be gone before a reconcile has seen it, and nothing else of an actor
    /// without objects says that it is orphaned (FW-23 (g)).
    fn inherit(&self, other: &Self) -> Option<Self> {
        let lacks = other.deletion.orphans && !self.deletion.orphans && self.metadata.deleting;
        lacks.then(|| {
            let mut record = self.clone();
            record.deletion.orphans = true;
            record
        })
    }

    fn project(raw: RawActor<'_>) -> Self {
        let equals = |name, expected: &str| {
            let value = raw.metadata.annotations.get(name);
            value.is_some_and(|value| value == expected)
        };
        let is_on = |name| {
            let value = raw.metadata.annotations.get(name);
            validate::is_switched_on(value.map(AsRef::as_ref))
        };
        let unknown = validate::annotations(|name| {
            let value = raw.metadata.annotations.get(name);
            value.map(AsRef::as_ref)
        });
        let spec: Option<Spec> = read(raw.spec.as_deref());
        let timeout = spec.as_ref().map(|spec| spec.timeout.as_deref());
        let spec_bytes = raw.spec.as_ref().map_or(0, |spec| spec.get().len());
        let transport = spec.as_ref().map(|spec| spec.transport.clone());
        let (kept, transport) = validate::kept_spec(raw.spec.clone(), transport);
        let status_view = read(raw.status.as_deref()).unwrap_or_default();
        let deletion = match raw.metadata.deletion_timestamp {
            Some(_) => {
                DeletionFields::of(raw.spec.as_deref(), &raw.metadata.finalizers, &status_view)
            }
            None => DeletionFields::default(),
        };
        Self {
            metadata: raw.metadata.to_metadata(),
            generation: raw.metadata.generation,
            annotations: Annotations {
                paused: equals(annotation::PAUSED, "true")
                    || equals(annotation::RECONCILE, "Paused"),
                once: equals(annotation::RECONCILE, "Once"),
                skip_queue_deletion: is_on(annotation::SKIP_QUEUE_DELETION),
                reclaim_fields: equals(annotation::RECLAIM_FIELDS, "true"),
                allow_recreate: equals(annotation::ALLOW_RECREATE, "true"),
                roll_now: raw.metadata.annotation(annotation::ROLL_NOW).is_some(),
                skip_unbind: equals(annotation::SKIP_UNBIND, "true"),
                role_arn: raw.metadata.annotation(annotation::ROLE_ARN),
                unknown: (!unknown.is_empty()).then(|| validate::joined(&unknown).into()),
                adopt_queue_from: raw.metadata.annotation(annotation::ADOPT_QUEUE_FROM),
            },
            created: raw.metadata.creation_timestamp,
            deleted: raw.metadata.deletion_timestamp,
            timeout: timeout
                .and_then(|raw| raw.map_or(Some(Timeout::default()), |raw| read(Some(raw)))),
            queue_policy: QueueDeletionPolicy::from_raw(
                spec.as_ref().and_then(|spec| spec.queue.as_ref()),
            ),
            deletion,
            binds_to: read::<RawMode>(raw.spec.as_deref())
                .filter(|mode| mode.workload.is_none())
                .and_then(|mode| mode.workload_ref),
            status_view,
            metric_fields: MetricFields::of(raw.spec.as_deref(), raw.status.as_deref()),
            finalizers: raw.metadata.finalizers,
            spec: kept,
            transport,
            spec_bytes,
            status: raw.status,
        }
    }

    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn to_enqueue(&self) -> Enqueue {
        Enqueue::Actor(self.metadata.key.clone())
    }
}
