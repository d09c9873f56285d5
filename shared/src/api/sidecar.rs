//! `spec.sidecar`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EnvVar, Resources};

/// The sidecar that moves messages between the queue and the runtime. Every field is optional.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// Image of the sidecar. Default: the image in the operator's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Decides when the kubelet pulls that image: Always, IfNotPresent (the default) or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// CPU and memory of the sidecar, for example {requests: {cpu: 50m, memory: 32Mi}}. A value replaces the default as
    /// a whole. Default: the resources in the operator's configuration (requests 100m and 64Mi, limits 500m and 256Mi);
    /// with workloadRef, requests of 10m and 32Mi, and no limits unless a quota of the namespace or the pod's QoS class
    /// Guaranteed requires them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Additional environment variables of the sidecar, for example ASYA_LOG_LEVEL. They override the operator's,
    /// except for ASYA_SOCKET_DIR and ASYA_ACTOR_NAME, which cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// Runs the sidecar as a native sidecar: an init container with restartPolicy Always that starts before the runtime
    /// and stops after it. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<bool>,
    /// Security context of the sidecar, passed through unchanged. Default: no privilege escalation, no capabilities,
    /// seccomp profile RuntimeDefault; with workloadRef also a non-root user and a read-only root filesystem.
    /// Privileged mode, privilege escalation and capabilities other than NET_BIND_SERVICE are refused unless the
    /// operator's configuration allows them.
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
    /// Never: the node must have it.
    Never,
}
