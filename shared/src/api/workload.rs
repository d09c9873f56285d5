//! `spec.workload`: the workload that the operator creates.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages;
use super::rules::unless_broken_before;

/// A workload that the operator creates and owns; it adds the sidecar to its pods.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // Only a StatefulSet creates volume claims (VAL-14).
    validation = unless_broken_before(
        "!has(self.volumeClaimTemplates) || size(self.volumeClaimTemplates) == 0 || (has(self.kind) && self.kind == 'StatefulSet')"
    )
    .message(messages::CLAIMS_NEED_STATEFUL_SET)
    .field_path(".volumeClaimTemplates"),
    // VAL-14. Changing to StatefulSet creates a new object, which may bring its first claims.
    validation = Rule::new(
        "!(has(self.kind) && self.kind == 'StatefulSet' && has(oldSelf.kind) && oldSelf.kind == 'StatefulSet') || \
         (has(self.volumeClaimTemplates) ? self.volumeClaimTemplates : []) == (has(oldSelf.volumeClaimTemplates) ? oldSelf.volumeClaimTemplates : [])"
    )
    .message(messages::CLAIMS_IMMUTABLE)
    .field_path(".volumeClaimTemplates")
)]
pub struct Workload {
    /// Kind of the workload: Deployment (the default) or StatefulSet. A change creates the new workload and
    /// deletes the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkloadKind>,
    /// Number of pods while scaling is off. Default: 1. With scaling on, the queue decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub replicas: Option<i32>,
    /// Python interpreter of the asya-runtime container, as a name or path; version 3.7 or newer. Default: python3.
    /// Example: /opt/venv/bin/python3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python_executable: Option<String>,
    /// Pod template, as in a Deployment. Exactly one container must be named asya-runtime: the operator sets its
    /// command to the runtime, which runs the handler in its variable ASYA_HANDLER. The operator adds the sidecar, its
    /// volumes and missing probes; everything else passes through unchanged. Example: {spec: {containers: [{name:
    /// asya-runtime, image: "me/handler:1", env: [{name: ASYA_HANDLER, value: app.process}]}]}}.
    // Without a schema, so that every field that the API server knows passes (API-5).
    #[schemars(schema_with = "super::schema::object")]
    pub template: Value,
    /// Persistent volume claims of each pod, as in a StatefulSet. Only allowed for kind StatefulSet, and immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_objects")]
    pub volume_claim_templates: Option<Vec<Value>>,
}

/// Kind of a workload that the operator creates.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum WorkloadKind {
    /// Interchangeable pods.
    #[default]
    Deployment,
    /// Pods with a stable identity and volumes of their own.
    StatefulSet,
}

impl WorkloadKind {
    /// Returns the kind's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }
}
