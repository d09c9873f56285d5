//! What we answer. Field names of the former operator are kept (API-8).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of an `AsyncActor`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AsyncActorStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<State>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_pods: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas_summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_mode: Option<ScalingMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_direction: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_formatted: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_messages: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing_messages: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<ObjectReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_object_ref: Option<ObjectReference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired_queues: Vec<QueueStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<InventoryEntry>,
    // binding mode: bound_since, resolved_target, pods, conflict_count, last_conflict_time, conflicts
}

/// Which of the two ways an actor works.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum Mode {
    Standalone,
    Binding,
}

/// The 17 values of `status.status` (STA-4).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum State {
    Creating,
    Running,
    Napping,
    Updating,
    ScalingUp,
    ScalingDown,
    Degraded,
    Terminating,
    PendingResources,
    ConfigError,
    VolumeError,
    ImagePullError,
    RuntimeError,
    SidecarError,
    WorkloadError,
    TransportError,
    ScalingError,
}

/// Who decides the number of replicas.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ScalingMode {
    #[serde(rename = "KEDA")]
    Keda,
    Manual,
}

/// Names an object of the actor's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A queue at a broker.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    pub transport: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Generation of the actor for which the queue was last found as wished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_generation: Option<i64>,
}

/// An object that we made (FW-25).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    pub group: String,
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Hash of the object as we last sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Fingerprint of our `managedFields` entry after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}
