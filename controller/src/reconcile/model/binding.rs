//! A binding: its target, and the target's pods.

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

/// A binding as a pass sees it.
#[derive(Debug, Default)]
pub struct BindingSeen {
    /// The target, or why it cannot be bound; `None` while that is not asked for.
    pub target: Option<Result<Box<Resolved>, Fault>>,
    /// Its pods; `None` while nobody has listed them.
    pub pods: Option<BoundPods>,
    /// What the actor applied to the pod template of a target that is another's by now.
    pub ceded: Option<Ceded>,
    /// It is required, and its webhook entry is fail-open all the same (CFG-7); `None`: nobody has told.
    pub not_enforced: Option<bool>,
    /// What is known of dry runs of its pods; `None` where none is made.
    pub probe: Option<ProbeSeen>,
    /// Resources that need limits in its namespace; `None` while the quotas there have not been listed.
    pub limits: Option<Limits>,
    /// What a rollout of these would meet; `None` while it is not asked for.
    pub rollout: Option<RolloutSeen>,
    /// What an actor that goes leaves in them; `None` while nobody can tell.
    pub unbinding: Option<UnbindingSeen>,
    /// How its queue scales it, or why it cannot; `None` while scaling is off, or nobody knows what is to be scaled.
    pub scaling: Option<Result<Box<ScalingOfTarget>, Fault>>,
}

/// Names of resources.
pub type Limits = BTreeSet<Box<str>>;

/// What is known of dry runs of a target's pods.
#[derive(Clone, Debug, Default)]
pub struct ProbeSeen {
    /// One would tell something that status does not.
    pub wanted: bool,
    /// When it is due.
    pub turn: Turn,
    /// A pod for it, where a rollout has none (see [`crate::reconcile::model::observed::Observed::probe_pod`]).
    pub pod: Option<Value>,
}

impl ProbeSeen {
    /// Whether one is to be made now.
    pub fn is_due(&self) -> bool {
        (self.wanted || self.turn.requested) && self.turn.wait.is_none()
    }
}

/// How a queue scales a target.
#[derive(Debug)]
pub struct ScalingOfTarget {
    /// What is scaled.
    pub target: ScaleTarget,
    /// What makes KEDA do so, or why KEDA cannot be told of the queue yet.
    pub objects: Result<ScalingObjects, Untriggerable>,
}

impl BindingSeen {
    /// Whether the target is an older actor's (BIND-45).
    pub fn is_anothers(&self) -> bool {
        let fault = self.target.as_ref().and_then(|it| it.as_ref().err());
        fault.is_some_and(|it| it.reason == Reason::AlreadyBound)
    }

    /// How its queue scales the target, where it can.
    pub fn scaling_of_target(&self) -> Option<&ScalingOfTarget> {
        self.scaling.as_ref()?.as_deref().ok()
    }
}

/// A target that is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// What it means.
    pub target: Target,
    /// Pods that are asked for, where it says so.
    pub replicas: Option<i32>,
    /// Tells the spec of the target from another (CONF-6).
    pub spec: Box<str>,
    /// What we own of its pod template (BIND-50).
    pub templated: Option<TemplatePart>,
}

impl Resolved {
    /// The uid of the target, which stays where its workload is replaced.
    pub fn uid(&self) -> Option<&str> {
        let target = self.target.chain.first().unwrap_or(&self.target.workload);
        target.uid.as_deref()
    }

    /// The specs of now: tries that are given up are given up for these (CONF-6).
    pub fn specs(&self, generation: i64) -> Specs {
        Specs {
            generation,
            target: self.spec.to_string(),
        }
    }
}
