//! The steps of a plan.

use asya_shared::resolve::ObjectRef;

use crate::broker::Serving;
use crate::fault::{Fault, Requeue};
use crate::reconcile::plan::scaling::{Removal, ScalingPlan};

/// At least so many pods, where there are none (SO-6).
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    /// What is scaled, once, by its `/scale`.
    pub object: ObjectRef,
    /// The number of its pods.
    pub replicas: i32,
}

/// About the queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueStep {
    /// It is as wanted; with what the broker said of it in this pass.
    Keep(Option<Serving>),
    /// It is not known for now (QUE-10, OPS-22): look again then.
    Await(Requeue),
    /// It is somebody's business, not ours (QUE-12).
    Unmanaged,
    /// It is not the one that the pods know, which are left alone (FW-21).
    Leave,
    /// Create it.
    Create,
    /// Bring it to what is wanted, with its messages.
    Update,
    /// It cannot be had now.
    Refuse(Fault),
}

/// About the workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadStep {
    /// It is as wanted, or not to be touched.
    Keep,
    /// There is none: apply it, once the queue is there (QUE-4).
    Create,
    /// Apply it.
    Update {
        /// First make the former operator's fields ours: this is where they stand (WRK-7).
        take_over: Option<usize>,
        /// First give the number of replicas an owner of its own (WRK-3).
        hand_over: bool,
        /// First make the fields ours that kubectl or Helm wrote (FW-22).
        reclaim: bool,
    },
    /// It cannot be had now.
    Refuse(Fault),
}

/// About what scales the workload.
#[derive(Debug, PartialEq)]
pub enum ScalingStep {
    /// Scaling is on.
    Wanted(ScalingPlan),
    /// Scaling is off.
    Unwanted(Removal),
    /// Scaling is on and cannot be had (SO-4).
    Refused(Removal, Fault),
}

impl WorkloadStep {
    /// What keeps the workload from being what it should be.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Refuse(fault) => Some(fault.clone()),
            Self::Keep | Self::Create | Self::Update { .. } => None,
        }
    }
}

impl ScalingStep {
    /// What keeps the workload from being scaled.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Wanted(plan) => plan.fault.clone(),
            Self::Unwanted(_) => None,
            Self::Refused(_, fault) => Some(fault.clone()),
        }
    }

    /// What the first `ScaledObject` of a binding waits for.
    pub fn waits_for(&self) -> Option<&'static str> {
        match self {
            Self::Wanted(plan) => plan.waits_for,
            Self::Unwanted(_) | Self::Refused(..) => None,
        }
    }
}
