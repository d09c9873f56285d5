//! The `AsyncActor` and its spec.
#![expect(
    clippy::duplicated_attributes,
    reason = "columns of one type are no duplicates"
)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules::unless_broken_before;
use super::{
    AsyncActorStatus, Binding, BoundRuntime, Queue, Scaling, Sidecar, Timeout, Workload,
    WorkloadRef, messages,
};

/// The desired state: the queue that the actor consumes, the workload that processes its messages, and how it scales.
// No field has a schema default (API-4); `effective.rs` defines the value of an absent field. Rules stay under `spec`,
// as deep as possible: the API server skips a rule whose part of the object does not change, so objects that are older
// than a rule can still be labelled, reported on and deleted.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[kube(
    group = "asya.sh",
    version = "v1alpha1",
    kind = "AsyncActor",
    plural = "asyncactors",
    singular = "asyncactor",
    namespaced,
    status = "AsyncActorStatus",
    derive = "PartialEq",
    shortname = "asyncactor",
    shortname = "asya",
    shortname = "asyas",
    category = "asya",
    doc = "An AsyncActor makes a workload consume a message queue and scale with it. Either the operator creates \
           the workload (spec.workload), or the actor binds to one of another controller, for example a KAITO \
           Workspace or a KServe InferenceService (spec.workloadRef).",
    // Replicas of the workload that the operator creates; a binding has no replicas to set.
    scale(
        spec_replicas_path = ".spec.workload.replicas",
        status_replicas_path = ".status.totalReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.status"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Failing", type_ = "integer", json_path = ".status.failingPods"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.totalReplicas"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Min", type_ = "integer", json_path = ".status.minReplicas"),
    printcolumn(name = "Max", type_ = "integer", json_path = ".status.maxReplicas"),
    printcolumn(name = "Last-Scale", type_ = "date", json_path = ".status.lastScaleTime"),
    printcolumn(name = "Direction", type_ = "string", json_path = ".status.lastScaleDirection", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".status.mode", priority = 1),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.resolvedTarget.name", priority = 1),
    printcolumn(name = "Workload", type_ = "string", json_path = ".status.workloadRef.kind", priority = 1),
    printcolumn(name = "Transport", type_ = "string", json_path = ".status.transportStatus", priority = 1),
    printcolumn(name = "Scaling", type_ = "string", json_path = ".status.scalingMode", priority = 1),
    printcolumn(name = "Queued", type_ = "integer", json_path = ".status.queuedMessages", priority = 1),
    printcolumn(name = "Processing", type_ = "integer", json_path = ".status.processingMessages", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // An actor has exactly one mode (VAL-2, BIND-10).
    validation = unless_broken_before("has(self.workload) != has(self.workloadRef)").message(messages::ONE_MODE),
    // A workload of the operator's has its runtime in the pod template (BIND-11).
    validation = unless_broken_before("has(self.workloadRef) || !has(self.runtime)")
        .message(messages::RUNTIME_NEEDS_TARGET).field_path(".runtime"),
    // Without a target there is nothing to bind (BIND-12).
    validation = unless_broken_before("has(self.workloadRef) || !has(self.binding)")
        .message(messages::BINDING_NEEDS_TARGET).field_path(".binding"),
    // The objects of the other mode would be left behind (BIND-13).
    validation = Rule::new("has(self.workloadRef) == has(oldSelf.workloadRef)").message(messages::MODE_IMMUTABLE),
    // Owners of other kinds revert changes of the pod template (BIND-17).
    validation = unless_broken_before(
        "!has(self.binding) || !has(self.binding.strategy) || self.binding.strategy != 'Template' || !has(self.workloadRef) || \
         (self.workloadRef.apiVersion.startsWith('apps/') && self.workloadRef.kind in ['Deployment', 'StatefulSet'])"
    ).message(messages::TEMPLATE_KIND).field_path(".binding.strategy")
)]
pub struct AsyncActorSpec {
    /// Selects the broker that holds the actor's queue, by the name of a transport in the operator's configuration, for
    /// example rabbitmq or sqs.
    // An empty name passes "required" (VAL-1).
    #[x_kube(validation = Rule::new("self != ''").message(messages::TRANSPORT_MISSING))]
    pub transport: String,
    /// Describes the workload that the operator creates for this actor. Set exactly one of workload and workloadRef; an
    /// actor cannot change from one to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// References an object of another controller whose pods process the messages. The operator adds the runtime and
    /// the sidecar to these pods and, with scaling enabled, scales them, but never takes ownership of the object. Set
    /// exactly one of workload and workloadRef; an actor cannot change from one to the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,
    /// Configures the runtime container that the operator adds to the target's pods. Only allowed with workloadRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<BoundRuntime>,
    /// Controls how the sidecar gets into the target's pods. Only allowed with workloadRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Configures the sidecar that the operator adds to each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
    /// Sets time limits, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// Number of messages that one pod processes at a time, from 1 to 256. Above 1, the handler is called from as many
    /// threads. Default: 1, or 8 with an adapter for OpenAI-compatible servers. The sidecar must support it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 256").message(messages::CONCURRENCY))]
    pub concurrency: Option<i32>,
    /// Scales the workload by the depth of its queue, through KEDA. Default: off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Configures the actor's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Decides whether the operator adopts an existing object whose name it needs. Never (the default): it leaves
    /// the object alone and reports NotOwned. IfUnowned: it adopts an object that has no controller. It never adopts
    /// over an object of another controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption_policy: Option<AdoptionPolicy>,
    /// Decides what happens to the actor's objects when it is deleted. Delete (the default): the operator deletes the
    /// workload that it created, the scaling objects and, unless queue.deletionPolicy keeps it, the queue. Orphan: all
    /// of them stay and keep running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<ActorDeletionPolicy>,
}

/// Which existing objects of a needed name the operator may adopt.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum AdoptionPolicy {
    /// None.
    #[default]
    Never,
    /// Those without a controller.
    IfUnowned,
}

/// What happens to the actor's objects when it is deleted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum ActorDeletionPolicy {
    /// They are deleted with it.
    #[default]
    Delete,
    /// They stay, without an owner.
    Orphan,
}
