//! The observed state of a binding: the target and its pods.

use std::collections::BTreeSet;

use asya_shared::resolve::Target;
use asya_shared::scaling::{ScalingObjects, Untriggerable};
use serde_json::Value;

use crate::binding::TemplatePart;
use crate::binding::probes::Turn;
use crate::fault::{Fault, Reason};
use crate::reconcile::contention::Specs;
use crate::reconcile::model::bound_pods::BoundPods;
use crate::reconcile::model::handover::Ceded;
use crate::reconcile::model::rollout::{RolloutSeen, UnbindingSeen};
use crate::record::ScaleTarget;

/// A binding as observed by one reconcile.
#[derive(Debug, Default)]
pub struct BindingSeen {
    /// The target, or why it cannot be bound; `None` while it need not or cannot be resolved yet.
    pub target: Option<Result<Box<Resolved>, Fault>>,
    /// The target's pods; `None` until they have been listed.
    pub pods: Option<BoundPods>,
    /// What this actor applied to the pod template of a target that an older actor binds now, or what an actor that no
    /// longer exists left in the template of this one's target.
    pub ceded: Option<Ceded>,
    /// The actor whose part is in the pod template of this one's target, if it still exists.
    pub part_of: Option<PartOwner>,
    /// The binding is required, but its webhook entry still fails open (CFG-7); `None` if unknown.
    pub not_enforced: Option<bool>,
    /// Dry-run state of the pods; `None` if no dry run is made.
    pub probe: Option<ProbeSeen>,
    /// Resources that need limits in the namespace; `None` until its quotas have been listed.
    pub limits: Option<Limits>,
    /// State for a rollout of the pods; `None` if no rollout is considered.
    pub rollout: Option<RolloutSeen>,
    /// What an actor being deleted still has in the pods; `None` while that is unknown.
    pub unbinding: Option<UnbindingSeen>,
    /// How the queue scales the target, or why it cannot; `None` while scaling is off or the scaled object is unknown.
    pub scaling: Option<Result<Box<ScalingOfTarget>, Fault>>,
}

/// Another actor whose part is in the target's pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartOwner {
    pub name: Box<str>,
    /// It removes its part only once it is resumed.
    pub paused: bool,
}

/// Resource names, such as `memory`.
pub type Limits = BTreeSet<Box<str>>;

/// Dry-run state of a target's pods.
#[derive(Clone, Debug, Default)]
pub struct ProbeSeen {
    /// Whether a dry run would show something that status does not.
    pub wanted: bool,
    /// When the next dry run is due.
    pub turn: Turn,
    /// The pod to dry-run if a rollout provides none (see [`crate::reconcile::model::observed::Observed::probe_pod`]).
    pub pod: Option<Value>,
}

impl ProbeSeen {
    /// Whether to make a dry run now.
    pub fn is_due(&self) -> bool {
        (self.wanted || self.turn.requested) && self.turn.wait.is_none()
    }
}

/// How the queue scales a target.
#[derive(Debug)]
pub struct ScalingOfTarget {
    /// The scaled object.
    pub target: ScaleTarget,
    /// The KEDA objects to apply, or why no trigger can be built for the queue yet.
    pub objects: Result<ScalingObjects, Untriggerable>,
}

impl BindingSeen {
    /// Whether an older actor binds the target (BIND-45).
    pub fn is_anothers(&self) -> bool {
        let fault = self.target.as_ref().and_then(|it| it.as_ref().err());
        fault.is_some_and(|it| it.reason == Reason::AlreadyBound)
    }

    /// How the queue scales the target, if it can.
    pub fn scaling_of_target(&self) -> Option<&ScalingOfTarget> {
        self.scaling.as_ref()?.as_deref().ok()
    }
}

/// A target that could be resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// What the target resolves to.
    pub target: Target,
    /// Desired replicas, if the target specifies them.
    pub replicas: Option<i32>,
    /// Identifies the target's spec, to detect that it changed (CONF-6).
    pub spec: Box<str>,
    /// The fields of its pod template that we own (BIND-50).
    pub templated: Option<TemplatePart>,
}

impl Resolved {
    /// The uid of the target, which stays the same when the workload below it is replaced.
    pub fn uid(&self) -> Option<&str> {
        let target = self.target.chain.first().unwrap_or(&self.target.workload);
        target.uid.as_deref()
    }

    /// UID of the other actor whose part is in the pod template.
    pub fn part_of_other(&self, uid: &str) -> Option<&str> {
        let part = self.templated.as_ref().filter(|part| !part.is_of(uid))?;
        part.actor.as_deref()
    }

    /// The current specs: attempts given up stay given up until one of these changes (CONF-6).
    pub fn specs(&self, generation: i64) -> Specs {
        Specs {
            generation,
            target: self.spec.to_string(),
        }
    }
}
