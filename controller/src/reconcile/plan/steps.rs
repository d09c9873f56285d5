//! The steps that make up a plan.

use asya_shared::resolve::ObjectRef;

use crate::broker::ReadyQueue;
use crate::fault::{Fault, Requeue};
use crate::reconcile::model::outcome::ScalingWait;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::scaling::{ScalingPlan, ScalingTeardown};

/// Scales up an object that has no pods (SO-6).
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleFromZero {
    /// The object to scale once, by its `/scale` subresource.
    pub object: ObjectRef,
    pub replicas: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum QueueStep {
    /// It is as desired, with what the broker reported in this reconcile.
    Keep(Option<ReadyQueue>),
    /// Its state is not known yet (QUE-10, OPS-22): requeue.
    Await(Requeue),
    /// Queue management is disabled, so the queue is not ours (QUE-12).
    Unmanaged,
    /// Do not touch it: it was not queried, or `reconcile: Once` is done, and running pods consume from another queue
    /// (FW-21).
    Skip,
    Create,
    /// Bring it to the desired state, keeping its messages.
    Update,
    /// It cannot be provided now.
    Blocked(Fault),
}

#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadStep {
    /// It is as desired, or must not be touched.
    Keep,
    /// It does not exist: apply it once the queue exists (QUE-4).
    Create,
    Update(WorkloadUpdate),
    /// It cannot be provided now.
    Blocked(Fault),
}

/// Changes that precede the apply of the desired state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadUpdate {
    /// Replace this owner, an earlier actor of the same name (FW-23).
    pub previous_owner: Option<Box<str>>,
    /// Take over the Go operator's fields: the index of its `managedFields` entry (WRK-7).
    pub take_over: Option<usize>,
    /// Hand `spec.replicas` off to a separate field manager (WRK-3).
    pub hand_off_replicas: bool,
    /// Take over the fields that kubectl or Helm wrote (FW-22).
    pub take_over_kubectl_helm_fields: bool,
}

#[derive(Debug, PartialEq)]
pub enum ScalingStep {
    Enabled(ScalingPlan),
    Disabled(ScalingTeardown),
    /// Scaling is on but not possible (SO-4).
    Blocked(ScalingTeardown, Fault),
}

/// What contention or drift leaves of a planned scaling step.
#[derive(Debug, Default, PartialEq)]
pub struct ScalingRestriction {
    /// The `ScaledObject` must not be written now.
    pub keep_scaled_object: bool,
    /// Why the target cannot be scaled as desired.
    pub fault: Option<Fault>,
    /// What a binding's first `ScaledObject` waits for.
    pub waits_for: Option<ScalingWait>,
}

impl WorkloadStep {
    pub fn writes(&self) -> bool {
        matches!(self, Self::Create | Self::Update(_))
    }

    /// Why the workload is not as desired.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Blocked(fault) => Some(fault.clone()),
            Self::Keep | Self::Create | Self::Update(_) => None,
        }
    }
}

impl ScalingStep {
    /// The step under this restriction. Nothing restricts the deletion of KEDA's objects.
    #[must_use]
    pub fn restricted_by(self, restriction: ScalingRestriction) -> Self {
        match self {
            Self::Enabled(plan) => Self::Enabled(ScalingPlan {
                scaled_object: if restriction.keep_scaled_object {
                    ChildStep::Keep
                } else {
                    plan.scaled_object
                },
                fault: restriction.fault.or(plan.fault),
                waits_for: restriction.waits_for.or(plan.waits_for),
                ..plan
            }),
            Self::Disabled(_) | Self::Blocked(..) => self,
        }
    }

    /// Why the workload cannot be scaled.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Enabled(plan) => plan.fault.clone(),
            Self::Disabled(_) => None,
            Self::Blocked(_, fault) => Some(fault.clone()),
        }
    }

    /// What the first `ScaledObject` of a binding waits for.
    pub fn waits_for(&self) -> Option<&ScalingWait> {
        match self {
            Self::Enabled(plan) => plan.waits_for.as_ref(),
            Self::Disabled(_) | Self::Blocked(..) => None,
        }
    }
}
