//! `spec.workloadRef`, `spec.runtime`, `spec.binding`: what binding mode needs.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EnvVar, Resources, messages};

/// Names the object whose pods the actor binds to. It must lie in the actor's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
// BIND-14. A version may change, the group not.
#[x_kube(validation = Rule::new(
    "self.kind == oldSelf.kind && self.name == oldSelf.name && self.apiVersion.split('/')[0] == oldSelf.apiVersion.split('/')[0]"
).message(messages::TARGET_IMMUTABLE))]
pub struct WorkloadRef {
    /// API group and version of the target, for example kaito.sh/v1beta1 or apps/v1. Only the group counts.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9.-]+/v[a-z0-9]+$')").message(messages::API_VERSION))]
    pub api_version: String,
    /// Kind of the target, for example Workspace, InferenceService, RayService or Deployment.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("!(self in ['Job', 'CronJob'])").message(messages::NO_JOBS))]
    pub kind: String,
    /// Name of the target.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Leave it out, or name the actor's own namespace: an actor cannot bind across namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

impl WorkloadRef {
    /// The API group of the target: only it counts, a version may change (BIND-14).
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split('/').next().unwrap_or_default()
    }
}

/// The runtime container that is added to the target's pods: it calls the model's HTTP API for each message.
/// Every field is optional.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoundRuntime {
    /// Image of the runtime; it needs Python only. Default: the one that the operator is configured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Python in that image, by name or path, 3.7 or newer. Default python3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_executable: Option<String>,
    /// Function that handles a message, as module.function. Default: the adapter for the target's kind, for
    /// example asya_adapters.openai_chat, kserve_v1, kserve_v2 or rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)+$')").message(messages::HANDLER))]
    pub handler: Option<String>,
    /// URL of the model's server inside the same pod, for example http://127.0.0.1:5000. Default: the port that
    /// the target's kind uses.
    #[serde(default, rename = "targetURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new(r"self.matches('^https?://[^@\\s]+$')").message(messages::TARGET_URL))]
    pub target_url: Option<String>,
    /// Further environment variables of the runtime, for example ASYA_TARGET_MODEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new("self.all(e, e.name != 'ASYA_SOCKET_DIR')").message(messages::ENV_SOCKET_DIR),
        validation = Rule::new("self.all(e, e.name != 'ASYA_HANDLER')").message(messages::ENV_HANDLER),
        validation = Rule::new("self.all(e, e.name != 'ASYA_TARGET_URL')").message(messages::ENV_TARGET_URL)
    )]
    pub env: Option<Vec<EnvVar>>,
    /// CPU and memory of the runtime. Default: requests of 10m and 32Mi, no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// How the sidecar gets into the target's pods. Every field is optional.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
// BIND-18
#[x_kube(validation = Rule::new(
    "!has(self.strategy) || self.strategy != 'Template' || ((!has(self.rollout) || self.rollout != 'OnRestart') && (!has(self.required) || !self.required))"
).message(messages::TEMPLATE_OPTIONS))]
pub struct Binding {
    /// Pod (the default): pods get the sidecar when they are created. Template: the operator edits the pod
    /// template of a Deployment or StatefulSet that nothing else writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<BindingStrategy>,
    /// Whether pods that run without the sidecar are restarted: Always (the default), or OnRestart, which waits
    /// until something else restarts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<BindingRollout>,
    /// True: once bound, no pod of the target starts without the sidecar, not even while the operator's
    /// admission webhook is down. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

/// Where the containers of a binding are written.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum BindingStrategy {
    /// Into each pod at its creation.
    #[default]
    Pod,
    /// Into the pod template of the workload.
    Template,
}

/// Whether pods that run without the sidecar are restarted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum BindingRollout {
    /// Yes, as a rollout.
    #[default]
    Always,
    /// No: they get the sidecar at their next restart.
    OnRestart,
}
