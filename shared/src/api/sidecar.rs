//! `spec.sidecar`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EnvVar, Resources};

/// The sidecar that moves messages between the queue and the runtime. Every field is optional.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// Image of the sidecar. Default: the one that the operator is configured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the kubelet pulls that image: Always, IfNotPresent (the default) or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// CPU and memory of the sidecar, for example {requests: {cpu: 50m, memory: 32Mi}}. Default: what the
    /// operator is configured with (requests 100m and 64Mi, limits 500m and 256Mi). Given here, it replaces
    /// the default as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Further environment variables of the sidecar, for example ASYA_LOG_LEVEL. They win over the
    /// operator's, but for ASYA_SOCKET_DIR and ASYA_ACTOR_NAME, which cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// Run the sidecar as a native sidecar: an init container that restarts always, starts before the runtime
    /// and stops after it. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<bool>,
    /// Security context of the sidecar, passed through as written. Default: no privilege escalation, no
    /// capabilities, the runtime's default seccomp profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_object")]
    pub security_context: Option<Value>,
}

/// When the kubelet pulls an image.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum ImagePullPolicy {
    /// At each start of the container.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Not at all: the node must have it.
    Never,
}
