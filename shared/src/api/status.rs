//! Status of the actor. Field names of the Go operator are kept (API-8).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    ConflictStatus, InjectionStatus, PodCounts, ResolvedTarget, RollAnnotation, RolloutStatus,
    TemplateStatus,
};
use crate::explained::explained;

/// Observed state of the actor, written by the operator.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AsyncActorStatus {
    /// Who owns the workload. Standalone: the operator created it. Binding: another controller owns it.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub mode: Option<Mode>,
    /// The actor's state in one word. Running: as many pods as desired are ready. Napping: scaled to zero until
    /// messages arrive, or the target's user has stopped it. Creating, Updating, ScalingUp, ScalingDown, Terminating:
    /// in transition. Every other value names the problem; the conditions give the details.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<State>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Generation of the spec at which the actor became ready, if its annotation asya.sh/reconcile is Once. Its objects
    /// are left alone until the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_generation: Option<i64>,
    /// Ready summarizes TransportReady (the queue), WorkloadReady (the pods) and ScalingReady (KEDA), and with
    /// workloadRef TargetResolved and Injected. Conflict shows whether another field manager reverts what the operator
    /// writes.
    // Several managers may write conditions: without the key they would overwrite each other (API-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Number of conditions that are True, out of those expected, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_summary: Option<String>,
    /// Number of ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of pods that scaling, or workload.replicas, asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Number of ready pods, like replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Number of all pods, ready or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_replicas: Option<i32>,
    /// Number of pods that are not ready and not failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_replicas: Option<i32>,
    /// Since when no further pod has become ready although more are desired; absent if there is nothing to report.
    /// timeout.progress counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressing_since: Option<Time>,
    /// Number of pods that fail, for example by a crash loop or an image that cannot be pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_pods: Option<i32>,
    /// Ready pods out of desired pods, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_summary: Option<String>,
    /// Ready pods out of all pods, for example 2/4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas_summary: Option<String>,
    /// Effective value of scaling.minReplicas; absent while scaling is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    /// Effective value of scaling.maxReplicas; absent while scaling is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    /// What controls the number of pods. KEDA: the queue. Manual: workload.replicas, or with workloadRef the target
    /// itself.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub scaling_mode: Option<ScalingMode>,
    /// When the desired number of pods last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    /// Direction of the last scaling: up or down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_direction: Option<String>,
    /// Time and direction of the last scaling as text; "-" before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_formatted: Option<String>,
    /// Condition TransportReady in one word: Ready or NotReady.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_status: Option<String>,
    /// Approximate number of messages that wait in the queue; small changes are not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_messages: Option<i64>,
    /// Approximate number of messages that pods are processing; small changes are not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_messages: Option<i64>,
    /// Label selector of the actor's pods, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Workload whose pods process the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<ObjectReference>,
    /// KEDA's ScaledObject for this actor; absent while scaling is off. A binding keeps it while its target may still
    /// be at the 0 replicas that the queue has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_object_ref: Option<ObjectReference>,
    /// The actor's queue at the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
    /// True if the broker marks the queue as that of another actor or cluster (QueueConflict). Until that changes, this
    /// actor keeps no other one from the queue's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_marked_for_other: Option<bool>,
    /// Queues of an earlier transport or name. Each is deleted once it is empty, at the latest with the actor unless
    /// queue.deletionPolicy keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired_queues: Vec<QueueStatus>,
    /// When the deletion stopped waiting for the queue to be empty (queue.deletionPolicy DeleteIfEmpty or Drain). From
    /// then on, new pods of a bound target get no sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_released_since: Option<Time>,
    /// True if the actor's deletion keeps its objects and its queue, because deletionPolicy or the propagation policy
    /// was Orphan when the operator saw it. It does not change any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<bool>,
    /// All objects that the operator created for this actor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<InventoryEntry>,
    /// When the queue and the runtime script's ConfigMap first existed. From then on, new pods of the target get the
    /// sidecar as soon as a dry run has shown that the API server admits them with it (see injection).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_since: Option<Time>,
    /// Shows whether the API server admits pods with the sidecar, according to dry runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection: Option<InjectionStatus>,
    /// Workload that workloadRef resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_target: Option<ResolvedTarget>,
    /// Number of the target's pods with and without the sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodCounts>,
    /// Progress of replacing running pods by pods with the sidecar; absent if there is nothing to report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Objects of other controllers that carry an annotation of the operator's that triggers a rollout of their pods.
    /// The operator removes it when the actor is deleted, even if the target can no longer be resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roll_annotations: Vec<RollAnnotation>,
    /// What the operator applied to the target's pod template, with strategy Template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateStatus>,
    /// UID of the target that the operator annotated so that its owner leaves scaling to the queue.
    #[serde(rename = "claimed", default, skip_serializing_if = "Option::is_none")]
    pub handoff_uid: Option<String>,
    /// How often another controller reverted what the operator wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_count: Option<i64>,
    /// When that last happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_conflict_time: Option<Time>,
    /// Fields that another field manager reverts; at most 5.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ConflictStatus>,
}

/// A value that another version wrote and this one does not know reads as absent: the next status write replaces it,
/// and no actor becomes undecodable because of its own status.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Value::deserialize(deserializer).map(|value| serde_json::from_value(value).ok())
}

/// Who owns the workload of an actor.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum Mode {
    /// The operator.
    Standalone,
    /// Another controller.
    Binding,
}

explained! {
    /// The actor's state in one word.
    // The 17 values of STA-4.
    #[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
    #[schemars(transform = super::schema::without_description)]
    pub enum State {
        Creating:
            "The first pods are starting.",
            Some("Wait.");
        Running:
            "As many pods as desired are ready.",
            None;
        Napping:
            "The actor is scaled to zero; the next message starts a pod.",
            None;
        Updating:
            "A rollout replaces the pods.",
            Some("Wait.");
        ScalingUp:
            "More pods are starting.",
            Some("Wait.");
        ScalingDown:
            "Surplus pods are stopping.",
            Some("Wait.");
        Degraded:
            "Some pods are ready; others fail, or do not become ready.",
            Some("`kubectl asya trace NAME` shows which; look at their Events and logs.");
        Terminating = Terminating;
        PendingResources = PendingResources;
        ConfigError = ConfigError;
        VolumeError = VolumeError;
        ImagePullError = ImagePullError;
        RuntimeError = RuntimeError;
        SidecarError = SidecarError;
        WorkloadError:
            "The spec is invalid, the workload cannot be applied, the target cannot be bound, or another container \
             fails.",
            Some("See the conditions that are False: `kubectl asya status NAME`.");
        TransportError:
            "The queue cannot be used.",
            Some("See the reason of condition TransportReady: `kubectl asya status NAME`.");
        ScalingError:
            "KEDA cannot scale the workload.",
            Some("See the reason of condition ScalingReady: `kubectl asya status NAME`.");
    }
}

/// What controls the number of replicas.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum ScalingMode {
    /// The queue, through KEDA.
    #[serde(rename = "KEDA")]
    Keda,
    /// The user.
    Manual,
}

/// References an object in the actor's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// API version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object. The Go operator left it out where the field implies it.
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
    /// Name of the transport that holds the queue.
    pub transport: String,
    /// Name of the queue.
    pub name: String,
    /// URL of the queue, where the broker has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Generation of the spec for which the queue was last found as desired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_generation: Option<i64>,
    /// Hash of what was desired then; it changes with the transport's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_hash: Option<String>,
    /// Dead letter queues that belong, or belonged, to this queue alone. They are deleted with it if they are empty.
    // The transport may name another one by then (QUE-14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_letters: Vec<String>,
    /// Whether the queue may not exist, or not be the actor's: the operator was interrupted while the spec changed, and
    /// has not been able to look it up yet. It is deleted only if it is found empty, and does not reserve its name.
    // QUE-13
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
}

impl QueueStatus {
    /// Whether both name the same queue of the same transport.
    #[must_use]
    pub fn is_same_queue(&self, other: &Self) -> bool {
        (&self.transport, &self.name) == (&other.transport, &other.name)
    }
}

/// An object that the operator created.
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
    /// Phase of the object: Applied or Deleting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Hash of the object as last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Fingerprint of the fields that the operator owned after that. It changes when another field manager takes one
    /// over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Of the actor's workload: generation of the spec that it was applied for, while the spec has changed since but
    /// could not be applied, as of a paused actor.
    // SAFE-36
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_generation: Option<i64>,
}
