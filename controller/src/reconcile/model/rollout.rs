//! What a rollout of a target's pods would meet, and what an actor that goes leaves in them.

use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::bound_pods::{Counted, OutdatedPod};

/// The path of the annotations in a pod template.
pub const TEMPLATE: [&str; 4] = ["spec", "template", "metadata", "annotations"];

/// What a rollout would meet.
#[derive(Clone, Debug, Default)]
pub struct RolloutSeen {
    /// The target's pods.
    pub counted: Counted,
    /// What is annotated, and what is rolled by that.
    pub live: Vec<Live>,
    /// Tells the spec of the workloads from another.
    pub target: String,
    /// A budget that allows none of the pods to go.
    pub budget: Option<String>,
    /// Whether one more target may be rolled.
    pub has_slot: bool,
    /// How many of the target's pods can serve.
    pub availability: Availability,
    /// A pod of the target's for a dry run; `None`: none can be made up.
    pub probe: Option<Value>,
}

/// What is known of an object that an annotation is written to, or of a workload beside it.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the object"
)]
pub struct Live {
    /// The object.
    pub object: ObjectRef,
    /// The value of our annotation, where it is written to this one.
    pub value: Option<String>,
    /// Our containers stand in its pod template (BIND-50); told of an actor that goes.
    pub templated: bool,
    /// It is told by an annotation of ours that its queue scales it (SO-5).
    pub claimed: bool,
    /// It says by an annotation of ours who binds it (BIND-47).
    pub marked: bool,
    /// Its controller is replacing pods.
    pub rolling: bool,
    /// Pods that it asks for, where it says so.
    pub wanted: Option<i32>,
    /// Pods of it that are ready.
    pub ready: i32,
    /// Its controller deletes a pod before it makes the replacement, also while others are not ready.
    pub drains_first: bool,
    /// Its controller was told to replace none.
    pub paused: bool,
    /// A rollout of it may leave fewer pods ready than there are.
    pub lowers: bool,
    /// Its controller replaces a pod only when that is gone (ROLL-6).
    pub by_eviction: bool,
    /// Its pods ask for GPUs.
    pub gpus: bool,
}

impl Live {
    /// Annotations that an older actor has there are not ours to give up: only what stands in the template is (BIND-45).
    pub fn of_another(&mut self) {
        self.value = None;
        self.claimed = false;
        self.marked = false;
        self.paused &= self.templated;
    }
}

/// How many pods of a target can serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Availability {
    /// Pods that stay.
    pub present: i32,
    /// Those of them that are not ready.
    pub unready: Vec<UnreadyPod>,
    /// One is on its way out.
    pub going: bool,
    /// Pods that the target's controllers are asked to run, where they say so.
    pub wanted: Option<i32>,
}

/// A pod that is not ready.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnreadyPod {
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// When it was made.
    pub created: Option<Time>,
}

/// What is left of a binding.
#[derive(Clone, Debug, Default)]
pub struct UnbindingSeen {
    /// The user, or the end of the namespace, makes it needless to take it back.
    pub skip: bool,
    /// Pods with the actor's sidecar that stay.
    pub pods: Vec<OutdatedPod>,
    /// Such a pod is going.
    pub going: bool,
    /// The target asks for no pods.
    pub asleep: bool,
    /// How many pods of the target can serve.
    pub availability: Availability,
    /// How the target's pods are replaced.
    pub roll: Option<Roll>,
    /// What the queue scaled, where it could.
    pub scaled: Option<ObjectRef>,
    /// What was annotated, and what is rolled by that.
    pub live: Vec<Live>,
    /// Objects that still have our annotation although they are none of the target's, as far as that is understood.
    pub left: Vec<ObjectRef>,
    /// Why nobody knows what the target's pods are.
    pub unresolved: Option<String>,
}
