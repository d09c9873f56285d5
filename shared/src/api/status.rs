//! What we answer. Field names of the former operator are kept (API-8).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    BindingConflict, InjectionStatus, PodCounts, ResolvedTarget, RollAnnotation, RolloutStatus,
    TemplateStatus,
};

/// State of the actor, written by the operator.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AsyncActorStatus {
    /// Standalone: the operator made the workload. Binding: it belongs to another controller.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub mode: Option<Mode>,
    /// The actor's state in one word. Running: as many pods as wished are ready. Napping: scaled to zero, waiting
    /// for messages. Creating, Updating, ScalingUp, ScalingDown, Terminating: on its way. Every other value names
    /// what is wrong; the conditions say more.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<State>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Generation of the spec with which the actor was ready, while asya.sh/reconcile is Once: its objects are left
    /// alone until the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_generation: Option<i64>,
    /// Ready sums up the others: TransportReady (the queue), WorkloadReady (the pods), ScalingReady (KEDA); a
    /// binding has TargetResolved, Injected and Conflict, too.
    // Several managers may write conditions: without the key they would overwrite each other (API-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// True conditions of all that are expected, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_summary: Option<String>,
    /// Ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods that scaling, or workload.replicas, asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// All pods, ready or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_replicas: Option<i32>,
    /// Pods that are not ready and not failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_replicas: Option<i32>,
    /// Since when no further pod has become ready although more are wished; absent at rest. timeout.progress counts
    /// from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressing_since: Option<Time>,
    /// Pods that fail, for example by a crash loop or an image that cannot be pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_pods: Option<i32>,
    /// Ready of desired pods, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_summary: Option<String>,
    /// Ready of all pods, for example 2/4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas_summary: Option<String>,
    /// scaling.minReplicas in force; absent while scaling is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// scaling.maxReplicas in force; absent while scaling is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// KEDA: the queue decides the number of pods. Manual: workload.replicas does.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub scaling_mode: Option<ScalingMode>,
    /// When the desired number of pods last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    /// Direction of that change: up or down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_direction: Option<String>,
    /// Time and direction of that change as text; "-" before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_formatted: Option<String>,
    /// Ready or NotReady: the condition TransportReady in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_status: Option<String>,
    /// Messages that wait in the queue, about: small changes are not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_messages: Option<i64>,
    /// Messages that pods are working on, about: small changes are not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_messages: Option<i64>,
    /// Label selector of the actor's pods, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The workload whose pods do the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<ObjectReference>,
    /// KEDA's ScaledObject; absent while scaling is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_object_ref: Option<ObjectReference>,
    /// The actor's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
    /// Queues of an earlier transport or name. Each is deleted when it is empty, at the latest with the actor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired_queues: Vec<QueueStatus>,
    /// Since when a deletion no longer waits for the queue to be empty (queue.deletionPolicy DeleteIfEmpty or Drain):
    /// new pods of a bound target get no sidecar any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_released_since: Option<Time>,
    /// Every object that the operator made for this actor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<InventoryEntry>,
    /// When queue and runtime were first there. New pods of the target get the sidecar from then on, as soon as a dry run
    /// has shown that they are admitted with it (injection).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_since: Option<Time>,
    /// Whether the API server admits pods with the sidecar, as dry runs have shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection: Option<InjectionStatus>,
    /// The workload that workloadRef resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_target: Option<ResolvedTarget>,
    /// How many of the target's pods have the sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodCounts>,
    /// How far pods that ran before are being replaced by pods with the sidecar; absent at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Objects of others with an annotation of the operator's that makes their pods roll. It is taken back when the actor
    /// goes, also where the target is not understood any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roll_annotations: Vec<RollAnnotation>,
    /// What was applied to the target's pod template, with strategy Template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateStatus>,
    /// UID of the target whose owner was told, by an annotation, that the queue scales it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<String>,
    /// How often another controller took back what the operator wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_count: Option<i64>,
    /// When that last happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_conflict_time: Option<Time>,
    /// The fields concerned; at most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<BindingConflict>,
}

/// A word that another release wrote and this one does not know reads as absent: the next status write replaces
/// it, and no actor becomes unreadable by its own status.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Value::deserialize(deserializer).map(|value| serde_json::from_value(value).ok())
}

/// Which of the two ways an actor works.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum Mode {
    /// The operator makes the workload.
    Standalone,
    /// The workload belongs to another controller.
    Binding,
}

/// The actor's state in one word.
// The 17 values of STA-4.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum State {
    /// The first pods are on their way.
    Creating,
    /// As many pods as wished are ready.
    Running,
    /// Scaled to zero.
    Napping,
    /// A new revision rolls out.
    Updating,
    /// More pods are on their way.
    ScalingUp,
    /// Pods are going.
    ScalingDown,
    /// Some pods are not ready, for too long.
    Degraded,
    /// The actor is being deleted.
    Terminating,
    /// No node or quota has room for the pods.
    PendingResources,
    /// A `ConfigMap` or Secret is missing.
    ConfigError,
    /// A volume cannot be mounted.
    VolumeError,
    /// An image cannot be pulled.
    ImagePullError,
    /// The runtime's container fails.
    RuntimeError,
    /// The sidecar fails.
    SidecarError,
    /// The workload cannot be made, or another container fails.
    WorkloadError,
    /// The queue is not usable.
    TransportError,
    /// KEDA does not scale.
    ScalingError,
}

/// Who decides the number of replicas.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum ScalingMode {
    /// The queue, through KEDA.
    #[serde(rename = "KEDA")]
    Keda,
    /// The user.
    Manual,
}

/// Names an object of the actor's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// API version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object; the former operator left it out where the field says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A queue at a broker.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Transport that holds the queue.
    pub transport: String,
    /// Name of the queue.
    pub name: String,
    /// URL of the queue, where the broker has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Generation of the spec for which the queue was last found as wished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_generation: Option<i64>,
    /// Hash of what was wished then: another transport configuration changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_hash: Option<String>,
    /// Dead letter queues that are or were this queue's alone. They go with it if they are empty.
    // QUE-14
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letters: Vec<String>,
}

/// An object that the operator made.
// FW-25
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    /// API group of the object; empty for the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Applied or Deleting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Hash of the object as it was last sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Fingerprint of the fields that the operator owned after that: it changes when something else takes one over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}
