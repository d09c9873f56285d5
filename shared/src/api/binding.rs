//! `spec.workloadRef`, `spec.runtime`, `spec.binding`: what binding mode needs.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EnvVar, Resources, messages};

/// References the object whose pods the actor binds to, in the actor's namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
// BIND-14. The version may change, the group must not.
#[x_kube(validation = Rule::new(
    "self.kind == oldSelf.kind && self.name == oldSelf.name && self.apiVersion.split('/')[0] == oldSelf.apiVersion.split('/')[0]"
).message(messages::TARGET_IMMUTABLE))]
pub struct WorkloadRef {
    /// API group and version of the target, for example kaito.sh/v1beta1 or apps/v1. Only the group is compared; the
    /// version may change.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9.-]+/v[a-z0-9]+$')").message(messages::API_VERSION))]
    pub api_version: String,
    /// Kind of the target, for example Workspace, InferenceService, RayService or Deployment. Job and CronJob are
    /// refused.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("!(self in ['Job', 'CronJob'])").message(messages::NO_JOBS))]
    pub kind: String,
    /// Name of the target.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Namespace of the target: absent or the actor's own, because an actor cannot bind across namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

impl WorkloadRef {
    /// Returns the API group of the target. Only the group is compared; the version may change (BIND-14).
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split('/').next().unwrap_or_default()
    }
}

/// The runtime container that the operator adds to the target's pods. It calls the model's HTTP API for each message.
/// Every field is optional.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoundRuntime {
    /// Image of the runtime container. It needs Python 3.7 or newer and nothing else. Default: the image in the
    /// operator's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Python interpreter in that image, as a name or path; version 3.7 or newer. Default: python3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_executable: Option<String>,
    /// Function that handles each message, as module.function. Default: the adapter for the target's kind, for example
    /// asya_adapters.openai_chat, asya_adapters.kserve_v1, asya_adapters.kserve_v2 or asya_adapters.rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)+$')").message(messages::HANDLER))]
    pub handler: Option<String>,
    /// URL of the model server inside the same pod, for example http://127.0.0.1:5000. Default: 127.0.0.1 with the port
    /// of the target's kind or container; if that port is unknown, pods get no sidecar and condition Injected has
    /// reason TargetURLUnknown. Put credentials into env, not into the URL.
    #[serde(default, rename = "targetURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new(r"self.matches('^https?://[^@\\s]+$')").message(messages::TARGET_URL))]
    pub target_url: Option<String>,
    /// Additional environment variables of the runtime, for example ASYA_TARGET_MODEL. The operator sets
    /// ASYA_SOCKET_DIR, ASYA_SOCKET_NAME, ASYA_HANDLER and ASYA_TARGET_URL itself and refuses them here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new("self.all(e, e.name != 'ASYA_SOCKET_DIR')").message(messages::ENV_SOCKET_DIR),
        validation = Rule::new("self.all(e, e.name != 'ASYA_SOCKET_NAME')").message(messages::ENV_SOCKET_NAME),
        validation = Rule::new("self.all(e, e.name != 'ASYA_HANDLER')").message(messages::ENV_HANDLER),
        validation = Rule::new("self.all(e, e.name != 'ASYA_TARGET_URL')").message(messages::ENV_TARGET_URL)
    )]
    pub env: Option<Vec<EnvVar>>,
    /// CPU and memory of the runtime. Default: requests of 10m and 32Mi, and no limits unless a quota of the namespace
    /// or the pod's QoS class Guaranteed requires them.
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
    /// Decides where the operator adds the sidecar. Pod (the default): to each pod, at its creation. Template: to the
    /// pod template of a Deployment or StatefulSet that no other controller owns, which starts a rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<BindingStrategy>,
    /// Decides whether running pods without the sidecar are restarted. Always (the default): the operator starts a
    /// rollout or evicts them one by one. OnRestart: they get the sidecar when something else restarts them. Strategy
    /// Template does not allow OnRestart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<BindingRollout>,
    /// True: once bound, no pod of the target starts without the sidecar, not even while the operator's admission
    /// webhook is down. Default: false; pods then start without the sidecar while the webhook is down. Strategy
    /// Template does not allow true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

/// Where the operator adds the containers of a binding.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum BindingStrategy {
    /// To each pod, at its creation.
    #[default]
    Pod,
    /// To the pod template of the workload.
    Template,
}

/// Whether running pods without the sidecar are restarted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum BindingRollout {
    /// Yes, by a rollout or by evictions.
    #[default]
    Always,
    /// No: they get the sidecar at their next restart.
    OnRestart,
}
