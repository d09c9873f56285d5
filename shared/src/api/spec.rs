//! What users write. No field has a schema default (API-4): [`Spec`] methods give the value in force.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AsyncActorStatus;

/// Spec of an `AsyncActor`.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(group = "asya.sh", version = "v1alpha1", kind = "AsyncActor", namespaced, status = "AsyncActorStatus")]
#[serde(rename_all = "camelCase")]
pub struct AsyncActorSpec {
    /// Name of a transport in the operator's configuration.
    pub transport: String,
    /// Workload that the operator creates (standalone mode).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Object of another controller to bind to (binding mode).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
    /// The runtime that binding adds to the target's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<BoundRuntime>,
    /// How binding behaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// The injected sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
    /// Time limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// Scaling by queue depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// The actor's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// What to do with an object of a needed name that has no controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption_policy: Option<AdoptionPolicy>,
    /// What happens to the children when the actor is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<ActorDeletionPolicy>,
}

/// A workload of our own.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkloadKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_executable: Option<String>,
    /// Pod template, without schema: whatever the API server knows passes (API-5).
    pub template: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_templates: Option<Vec<Value>>,
}

/// Kind of a workload of our own.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
pub enum WorkloadKind {
    #[default]
    Deployment,
    StatefulSet,
}

/// Names the target of a binding.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The runtime container of a binding.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoundRuntime {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_executable: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    #[serde(default, rename = "targetURL", skip_serializing_if = "Option::is_none")]
    pub target_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// How a binding gets the sidecar into pods.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<BindingStrategy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<BindingRollout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

/// Where the containers of a binding are written.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum BindingStrategy {
    #[default]
    Pod,
    Template,
}

/// Whether pods that run without the sidecar are restarted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum BindingRollout {
    #[default]
    Always,
    OnRestart,
}

/// The injected sidecar.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<bool>,
    /// Security context, passed through as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Value>,
}

/// When the kubelet pulls an image.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ImagePullPolicy {
    Always,
    #[default]
    IfNotPresent,
    Never,
}

/// Environment variable of a container. What stands beside `name` passes through as written, so that a
/// newer API server's fields are not lost.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct EnvVar {
    pub name: String,
    #[serde(flatten)]
    pub source: serde_json::Map<String, Value>,
}

/// Resource requirements, passed through as written (quantities may be numbers or text).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(transparent)]
pub struct Resources(pub serde_json::Map<String, Value>);

/// Time limits in seconds.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_shutdown: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<i32>,
}

/// Scaling by queue depth.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling_interval: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown_period: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_cooldown_period: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_queue_length: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_in_flight: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advanced: Option<AdvancedScaling>,
    /// HPA behaviour (`scaleUp`, `scaleDown`), passed through as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Value>,
    /// KEDA's fallback, passed through as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Value>,
}

/// KEDA's scaling modifiers.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvancedScaling {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric_type: Option<MetricType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_to_original_replica_count: Option<bool>,
}

/// How the HPA reads the formula's value.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum MetricType {
    #[default]
    AverageValue,
    Value,
    /// Accepted by the former operator's schema; refused with a message (VAL-13).
    Utilization,
}

/// The actor's queue.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<QueueDeletionPolicy>,
}

/// What happens to the queue when the actor is deleted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum QueueDeletionPolicy {
    #[default]
    Delete,
    Retain,
}

/// Whose objects of a needed name may become ours.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum AdoptionPolicy {
    #[default]
    Never,
    IfUnowned,
}

/// What happens to the children when the actor is deleted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ActorDeletionPolicy {
    #[default]
    Delete,
    Orphan,
}
