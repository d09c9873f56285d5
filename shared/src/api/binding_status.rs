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
    /// Kind of the workload; where the target has several or none, of the object that groups the pods.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
    /// Namespace of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The adapter that speaks the model's protocol, where the target says it and its pods do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Label selector of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<String>,
    /// Objects from the target down to the workload, as Kind/name; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
}

/// What dry runs of pods with the sidecar have shown.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionStatus {
    /// The actor's part of annotation asya.sh/injected-hash with which the API server last admitted a pod. While it is
    /// another one than that of the spec, new pods start without the sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved: Option<String>,
    /// The same part, while the API server refuses pods with it: new pods start without the sidecar, and with
    /// binding.required not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The answer of the API server then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When any of this last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Generation of the spec of which the last dry run was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The operator's part of that annotation in the last dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Resources for which a quota of the namespace requires limits: the runtime and the sidecar get them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// How many of the target's pods have the sidecar.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// Pods of the target.
    pub matched: i32,
    /// Pods of these with this actor's runtime and sidecar.
    pub injected: i32,
    /// Pods of these without them.
    pub not_injected: i32,
    /// Pods with runtime and sidecar of an older spec or release.
    pub outdated: i32,
    /// Why pods have no sidecar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<NotInjected>,
}

/// A reason for which pods have no sidecar.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotInjected {
    /// The reason, for example StartedBeforeBinding, WebhookUnavailable, RemovedByOther or OptedOut.
    // Text, not an enum: a webhook of another release may write a reason that this one does not know.
    pub reason: String,
    /// Number of pods.
    pub count: i32,
    /// Names of some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// How far pods of the target that ran before are being replaced by pods with the sidecar; absent at rest.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Hash that pods are to have.
    pub value: String,
    /// When a replacement was last asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How often that was asked for in a row.
    pub tries: i32,
    /// Pods of the target when one was last evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<i32>,
    /// Replacements of evicted pods that came without the sidecar, in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bare: i32,
    /// Whether no further try is made until the spec of the actor or of the workload changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halted: bool,
    /// Whether a replacement has not become ready in time; no further pod is replaced until it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Tells the spec of the target's workloads from another.
    pub target: String,
}

/// An object that has an annotation of the operator's which makes its pods roll.
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
    /// Path of the annotations among which it is.
    pub path: String,
}

/// What was applied to the pod template of a target with strategy Template.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    /// UID of the workload.
    pub uid: String,
    /// Hash that its pods have.
    pub hash: String,
    /// Tells the rest of the workload's spec from another.
    pub target: String,
    /// Fingerprint of the fields that the operator owned after that: it changes when something else takes one over.
    pub fingerprint: String,
}

/// A field that another field manager takes back.
// What the next pass must know of it, also after a restart, stands here, too (CONF-6).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingConflict {
    /// Path of the field.
    pub field: String,
    /// How often it was taken back.
    pub count: i64,
    /// When it was last taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Time>,
    /// The other field manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rival: Option<String>,
    /// What the field is for: Template, Roll, Autoscaler, Replicas, ScaledObject or Workload.
    // Text, not an enum: another release may write one that this one does not know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// The object that has the field, as Kind/name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// UID of the target; the conflicts of one that is gone are forgotten.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Held, Waiting or Stopped; absent while the field is not needed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// How often it was taken back in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub losses: i32,
    /// When it is written again, if it is Waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// Generation of the actor's spec for which it is Stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Tells the target's spec for which it is Stopped from another.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}
