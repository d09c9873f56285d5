//! The part of the status that only a binding has.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The workload that the target resolved to.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedTarget {
    /// API version of the workload.
    pub api_version: String,
    /// Kind of the workload. If the target has several workloads or none: kind of the object that groups the pods.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
    /// Namespace of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Adapter for the model's protocol, if the target specifies the protocol and its pods do not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Label selector of the workload's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<String>,
    /// Objects from the target down to the workload, as Kind/name; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
}

/// Result of dry runs of pods with the sidecar.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionStatus {
    /// Actor hash (the first half of annotation asya.sh/injected-hash) for which the API server last admitted a pod.
    /// While the spec yields another value, new pods start without the sidecar, unless binding.required is true.
    #[serde(rename = "proved", default, skip_serializing_if = "Option::is_none")]
    pub verified_actor_hash: Option<String>,
    /// Actor hash for which the API server rejects pods. While the spec yields this value, new pods start without the
    /// sidecar; with binding.required they do not start.
    #[serde(rename = "refused", default, skip_serializing_if = "Option::is_none")]
    pub rejected_actor_hash: Option<String>,
    /// Response of the API server to the rejected dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When any of these fields last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Generation of the spec at the last dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Platform hash (the second half of that annotation) in the last dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Resources for which a quota of the namespace requires limits; the operator sets limits on the runtime and the
    /// sidecar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// Number of the target's pods with and without the sidecar.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// Number of pods of the target.
    pub matched: i32,
    /// Number of these pods with this actor's runtime and sidecar.
    pub injected: i32,
    /// Number of these pods without them.
    pub not_injected: i32,
    /// Number of pods with the runtime and sidecar of an older spec or version.
    pub outdated: i32,
    /// Reasons why pods have no sidecar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<NotInjected>,
}

/// A reason why pods have no sidecar.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotInjected {
    /// Reason, for example StartedBeforeBinding, WebhookUnavailable, RemovedByOther or OptedOut.
    // Text, not an enum: a webhook of another version may write a reason that this one does not know.
    pub reason: String,
    /// Number of pods with this reason.
    pub count: i32,
    /// Names of some of these pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// Progress of replacing running pods by pods with the sidecar; absent if there is nothing to report.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Hash that the pods are to carry.
    pub value: String,
    /// When a replacement was last requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Creation of the newest pod that was then to be replaced. Later pods are replacements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_pod: Option<Time>,
    /// How often a replacement was requested in a row.
    pub tries: i32,
    /// Number of pods of the target at the last eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<i32>,
    /// Number of replacements of evicted pods in a row that started without the sidecar.
    #[serde(rename = "bare", default, skip_serializing_if = "is_zero")]
    pub uninjected_replacements: i32,
    /// True while the rollout is stopped, until the spec of the actor or of the workload changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halted: bool,
    /// True while a replacement has not become ready in time; no further pod is replaced until it is ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Identifies the spec of the target's workloads.
    #[serde(rename = "target")]
    pub workload_specs_hash: String,
}

/// An object that carries an annotation of the operator's that triggers a rollout of its pods.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollAnnotation {
    /// API group and version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Path of the annotations that contain it.
    pub path: String,
}

/// What the operator applied to the pod template of a target with strategy Template.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    /// UID of the workload.
    pub uid: String,
    /// Hash that its pods carry.
    pub hash: String,
    /// Identifies the rest of the workload's spec.
    #[serde(rename = "target")]
    pub target_spec_hash: String,
    /// Fingerprint of the fields that the operator owned after that. It changes when another field manager takes one
    /// over.
    pub fingerprint: String,
}

/// A field that another field manager reverts.
// What the next reconcile must know of it, even after a restart, is kept here as well (CONF-6).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictStatus {
    /// Path of the field.
    pub field: String,
    /// How often it was reverted.
    pub count: i64,
    /// When it was last reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
    /// Name of the other field manager.
    #[serde(rename = "rival", default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Purpose of the field: Template, Roll, Autoscaler, Replicas, ScaledObject or Workload.
    // Text, not an enum: another version may write one that this one does not know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Object that contains the field, as Kind/name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// UID of the target. Conflicts of a target that no longer exists are dropped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// State of the field: Held, Waiting (for retryTime) or Stopped; absent while the field is not needed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// How often it was reverted in a row.
    #[serde(rename = "losses", default, skip_serializing_if = "is_zero")]
    pub consecutive_conflicts: i32,
    /// When the operator writes the field again, in state Waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// Generation of the actor's spec for which the field is Stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Identifies the target's spec for which the field is Stopped.
    #[serde(rename = "target", default, skip_serializing_if = "String::is_empty")]
    pub spec_hash: String,
}

impl ConflictStatus {
    /// Whether the operator waits before it writes the field again.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.state == ConflictState::Waiting.as_str()
    }
}

/// The values of [`ConflictStatus::state`] that this version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictState {
    /// The field has been written again.
    Held,
    /// The field is written again at `retryTime`.
    Waiting,
    /// The operator has yielded the field.
    Stopped,
}

impl ConflictState {
    /// The state as status stores it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Waiting => "Waiting",
            Self::Stopped => "Stopped",
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}
