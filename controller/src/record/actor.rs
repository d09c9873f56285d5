//! The record of an `AsyncActor`.

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

/// An actor as stored: spec and status are raw text, so that one which does not decode harms only itself.
#[derive(Clone, Debug)]
pub struct ActorRecord {
    /// Name, uid, version.
    pub metadata: Metadata,
    /// Rises with each change of the spec.
    pub generation: i64,
    /// When the actor was made.
    pub created: Option<Time>,
    /// When its deletion began.
    pub deleted: Option<Time>,
    /// The transport that it names, where that can be read.
    pub transport: Option<Box<str>>,
    /// What it binds to, where that can be read; `None`: we make its workload.
    pub binds_to: Option<WorkloadRef>,
    /// Its time limits, where they can be read.
    pub timeout: Option<Timeout>,
    /// What happens to its queue when it is deleted.
    pub queue_policy: QueueDeletionPolicy,
    /// What its status tells of queues.
    pub told: Told,
    /// What metrics count of it.
    pub counted: Counted,
    /// All finalizers, in order.
    pub finalizers: Vec<Box<str>>,
    /// Those annotations that steer us.
    pub annotations: Annotations,
    /// `spec` as it was sent.
    pub spec: Option<Arc<RawValue>>,
    /// `status` as it is stored.
    pub status: Option<Arc<RawValue>>,
}

/// FW-3: status and foreign metadata make no difference, so they start no pass.
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
    /// Whether its pods are to receive messages: also while its deletion waits for its queue to be empty (QUE-41).
    pub fn works(&self) -> bool {
        let waits =
            self.queue_policy.waits_until_empty() && self.told.queue_released_since.is_none();
        !self.metadata.deleting || waits
    }

    /// All that its status tells; nothing where that cannot be read.
    pub fn told_status(&self) -> AsyncActorStatus {
        let raw = self.status.as_ref();
        let read = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
        read.unwrap_or_default()
    }
}

/// What a status tells that others than the actor's own pass need to know; nothing where it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Told {
    /// The queue that was verified last.
    pub queue: Option<QueueName>,
    /// Those that the actor has left.
    pub retired_queues: Box<[QueueName]>,
    /// Pods that are wished.
    pub desired_replicas: i32,
    /// Since when its deletion does not wait for its queue any more.
    pub queue_released_since: Option<Time>,
}

/// What metrics count, read once for each change: a scrape looks at all actors (OPS-24). Nothing where it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// STATUS.
    pub status: Box<str>,
    /// Pods of a binding.
    pub pods: Option<PodCounts>,
    /// Whether its rollout has stopped.
    pub rollout: Rollout,
    /// Fields that others take back.
    pub conflicts: Box<[BindingConflict]>,
    /// Whether the spec cannot be read. Looked at only where the status says so, for that costs more than all the rest.
    #[serde(skip)]
    pub undecodable: bool,
}

/// How far a rollout is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Rollout {
    /// It goes no further.
    pub halted: bool,
    /// Nor this, until a replacement is ready.
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

/// The annotations of an actor that we read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an annotation of its own"
)]
pub struct Annotations {
    /// No writes but those of a deletion.
    pub paused: bool,
    /// What was applied once is left alone until the spec changes (FW-21).
    pub once: bool,
    /// The queue outlives the actor. Any value but a false one says so: messages cannot be brought back.
    pub skip_queue_deletion: bool,
    /// Fields of the workload that kubectl or Helm wrote become ours, once (FW-22).
    pub reclaim_fields: bool,
    /// A workload that cannot be changed in place is made anew (FW-22).
    pub allow_recreate: bool,
    /// Pods of the target are replaced that have anything older than today's (ROLL-8).
    pub roll_now: bool,
    /// The actor goes although pods still have its sidecar (BIND-44).
    pub skip_unbind: bool,
    /// IAM role of the actor's pods (SA-1).
    pub role_arn: Option<Box<str>>,
    /// What is wrong with those above, in words (FW-21).
    pub unknown: Option<Box<str>>,
    /// Cluster that the actor takes its queue over from (QUE-33).
    pub adopt_queue_from: Option<Box<str>>,
}

impl Annotations {
    /// The cluster that the actor takes its queue over from.
    pub fn adopts(&self) -> Option<&str> {
        let cluster = self.adopt_queue_from.as_deref().map(str::trim);
        cluster.filter(|cluster| !cluster.is_empty())
    }
}

/// The decoded fields of an `AsyncActor`.
#[derive(Deserialize)]
pub struct RawActor<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    spec: Option<Arc<RawValue>>,
    status: Option<Arc<RawValue>>,
}

/// Claims on queue names and the health pass need no more of a spec than this, often and of all actors.
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
