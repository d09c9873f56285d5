//! The observed state of a rollout of a target's pods, and what an actor being deleted still has in them.

use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::bound_pods::{Counted, OutdatedPod};

/// Path of the annotations in a workload's pod template.
pub const TEMPLATE: [&str; 4] = ["spec", "template", "metadata", "annotations"];

/// What a rollout has to consider.
#[derive(Clone, Debug, Default)]
pub struct RolloutSeen {
    /// Counts of the target's pods.
    pub counted: Counted,
    /// The objects that carry our roll annotation, and the workloads that this rolls.
    pub live: Vec<Live>,
    /// Hash of the workloads' specs, to detect a changed target.
    pub target: String,
    /// Name of a `PodDisruptionBudget` that allows no disruption now.
    pub budget: Option<String>,
    /// Whether this target has, or can get, a rollout slot.
    pub has_slot: bool,
    /// Availability of the target's pods.
    pub availability: Availability,
    /// A pod of the target to dry-run; `None` if none can be constructed.
    pub probe: Option<Value>,
}

/// An object that we annotate, or a workload beside it.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the object"
)]
pub struct Live {
    pub object: ObjectRef,
    /// Value of our roll annotation, if this object carries it.
    pub value: Option<String>,
    /// Our containers are in its pod template (BIND-50). Set only for an actor being deleted.
    pub templated: bool,
    /// It carries our claim, the annotation that says the queue scales it (SO-5).
    pub claimed: bool,
    /// It carries our annotation that names the binding actor (BIND-47).
    pub marked: bool,
    /// Its controller is rolling out pods.
    pub rolling: bool,
    /// Desired replicas, if it specifies them.
    pub wanted: Option<i32>,
    /// Ready replicas.
    pub ready: i32,
    /// Its controller deletes a pod before it creates the replacement, even while other pods are not ready.
    pub drains_first: bool,
    /// `spec.paused` is set: its controller replaces no pods.
    pub paused: bool,
    /// A rollout may reduce the number of ready pods.
    pub lowers: bool,
    /// Its pods are replaced by eviction, because its own rollout would replace none or all at once (ROLL-6).
    pub by_eviction: bool,
    /// Its pods request GPUs.
    pub gpus: bool,
}

impl Live {
    /// Ignores annotations of the older actor that binds this target: only our part of the pod template is ours to
    /// release (BIND-45).
    pub fn of_another(&mut self) {
        self.value = None;
        self.claimed = false;
        self.marked = false;
        self.paused &= self.templated;
    }
}

/// Availability of a target's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    /// Pods that are not terminating.
    pub present: i32,
    /// Those that are not ready.
    pub unready: Vec<UnreadyPod>,
    /// Whether a pod is terminating.
    pub going: bool,
    /// Replicas that the target's controllers should run, if they specify it.
    pub wanted: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnreadyPod {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub created: Option<Time>,
}

/// What a binding leaves behind when its actor is deleted.
#[derive(Clone, Debug, Default)]
pub struct UnbindingSeen {
    /// Cleanup is not needed: the user opted out, or the namespace is being deleted.
    pub skip: bool,
    /// Pods with the actor's sidecar that are not terminating.
    pub pods: Vec<OutdatedPod>,
    /// Whether such a pod is terminating.
    pub going: bool,
    /// The target is scaled to zero.
    pub asleep: bool,
    /// Availability of the target's pods.
    pub availability: Availability,
    /// How the target's pods are replaced.
    pub roll: Option<Roll>,
    /// The object that the queue scaled, if it could.
    pub scaled: Option<ObjectRef>,
    /// The objects that carry our roll annotation, and the workloads that this rolls.
    pub live: Vec<Live>,
    /// Objects that still carry our annotation, but are not known to belong to the target any more.
    pub left: Vec<ObjectRef>,
    /// Why the target's pods cannot be determined.
    pub unresolved: Option<String>,
}
