//! The plan of one reconcile.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::resolve::ObjectRef;

use crate::fault::Fault;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::plan::child::ChildStep;
use crate::reconcile::plan::finalizers::Finalizers;
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::steps::{QueueStep, ScalingStep, WorkloadStep};
use crate::reconcile::plan::{claim, deletion, probe, restore, template, wake};
use crate::record::WorkloadRecord;

/// What one reconcile does.
#[derive(Debug)]
pub enum Plan {
    /// The actor is paused: write no child and no queue, and query no broker.
    Rest(Rest),
    /// Bring queue and workload to the desired state.
    Ensure(Ensure),
    /// Bring the queue to the desired state; another controller manages the workload.
    Bind(Box<Bind>),
    /// Tear nothing down yet: check again after this delay whether the queue is empty.
    Confirm(Duration),
    /// Tear down what the operator created.
    Delete(deletion::Delete),
}

impl Plan {
    /// What to do about the actor's finalizers, before anything else.
    pub fn finalizers(&self) -> Finalizers {
        match self {
            Self::Ensure(plan) => plan.finalizers,
            Self::Bind(plan) => plan.finalizers,
            Self::Rest(_) | Self::Confirm(_) | Self::Delete(_) => Finalizers::Keep,
        }
    }

    /// Whether only the actor's queues remain to be deleted before its finalizer is removed.
    pub fn is_the_end(&self) -> bool {
        matches!(
            self,
            Self::Delete(deletion::Delete {
                then: deletion::Then::Finish { .. },
                ..
            })
        )
    }
}

/// Faults to report for a paused actor.
#[derive(Debug, Default, PartialEq)]
pub struct Rest {
    pub workload: Option<Fault>,
    pub scaling: Option<Fault>,
}

/// The steps for a standalone actor that is not being torn down, in execution order.
#[derive(Debug)]
pub struct Ensure {
    pub finalizers: Finalizers,
    /// Leave the children alone: `reconcile: Once` is done for this spec (FW-21).
    pub done_once: bool,
    pub queue: QueueStep,
    /// Applied before the workload, deleted after it.
    pub service_account: ChildStep,
    pub workload: WorkloadStep,
    /// The update replaces pods although nobody changed the actor, so it waits for its turn (SAFE-36).
    pub paced: bool,
    /// Retired queues to delete if they are empty.
    pub retired: Vec<QueueStatus>,
    /// Applied once the workload exists.
    pub scaling: Option<ScalingStep>,
    /// Whether drift of the workload and its `ScaledObject` is restored now or after a backoff.
    pub restore: restore::Restore,
    /// A workload of the kind that is no longer desired, deleted once the desired one exists (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
    /// Workloads that must have no pods, because these would consume another actor's messages (QUE-3).
    pub stopped: Vec<Arc<WorkloadRecord>>,
}

/// The steps for a binding that is not being torn down, in execution order.
#[derive(Debug)]
pub struct Bind {
    pub finalizers: Finalizers,
    /// Leave target and children alone: `reconcile: Once` is done for this spec (FW-21).
    pub done_once: bool,
    pub queue: QueueStep,
    /// Scaling of the target; `None` while it is unknown what to scale.
    pub scaling: Option<ScalingStep>,
    /// Contention over our `ScaledObject`; `None` while it is unknown what to scale.
    pub contest: Option<FieldDecision>,
    /// Contention over the target's number of pods.
    pub replicas: Option<FieldDecision>,
    /// A target that nothing scales any more, and nothing would wake.
    pub wake: Option<wake::Waking>,
    /// Our part of the target's pod template.
    pub template: template::Templating,
    /// The annotation that tells the target's owner that the queue scales it; `None`: there is none, or it is not due
    /// (SO-5).
    pub claim: Option<claim::Claiming>,
    /// A workload that is bound for the first time, to be marked with the actor that binds it (BIND-47).
    pub mark: Option<ObjectRef>,
    /// Dry run of a pod with the sidecar.
    pub probe: probe::Probing,
    /// Rollout of pods that started before the binding; `None` while it cannot be decided.
    pub roll: Option<Rolling>,
    /// Retired queues to delete if they are empty.
    pub retired: Vec<QueueStatus>,
}
