//! What to do in a reconcile.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::resolve::ObjectRef;

use crate::fault::Fault;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::plan::child::Step;
use crate::reconcile::plan::finalizers::Finalizers;
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::steps::{QueueStep, ScalingStep, WorkloadStep};
use crate::reconcile::plan::{claim, deletion, probe, restore, template, wake};
use crate::record::WorkloadRecord;

/// What to do in this pass.
#[derive(Debug)]
pub enum Plan {
    /// Write no child and no queue, ask no broker.
    Rest(Rest),
    /// Bring queue and workload to what is wanted.
    Ensure(Ensure),
    /// Bring the queue to what is wanted; another controller makes the workload.
    Bind(Box<Bind>),
    /// Take nothing down yet: whether the queue is empty shows after this time.
    Confirm(Duration),
    /// Take down what we made.
    Delete(deletion::Delete),
}

impl Plan {
    /// What is done about the actor's finalizers before anything else.
    pub fn finalizers(&self) -> Finalizers {
        match self {
            Self::Ensure(plan) => plan.finalizers,
            Self::Bind(plan) => plan.finalizers,
            Self::Rest(_) | Self::Confirm(_) | Self::Delete(_) => Finalizers::Keep,
        }
    }

    /// Whether nothing but its queues stands between the actor and its end.
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

/// What a look shows to be wrong with an actor that is paused.
#[derive(Debug, Default, PartialEq)]
pub struct Rest {
    /// With its workload.
    pub workload: Option<Fault>,
    /// With what scales that.
    pub scaling: Option<Fault>,
}

/// The parts of a pass over an actor that lives, in the order in which they are done.
#[derive(Debug)]
pub struct Ensure {
    /// About the actor's finalizers, first.
    pub finalizers: Finalizers,
    /// Write no child: this spec has had what it asked for, once (FW-21).
    pub done_once: bool,
    /// About the queue.
    pub queue: QueueStep,
    /// About the `ServiceAccount`: applied before the workload, deleted after it.
    pub service_account: Step,
    /// About the workload.
    pub workload: WorkloadStep,
    /// That replaces its pods although nobody changed the actor: it waits for its turn (SAFE-36).
    pub paced: bool,
    /// Retired queues that go if they are empty.
    pub retired: Vec<QueueStatus>,
    /// About what scales it, once it is there.
    pub scaling: Option<ScalingStep>,
    /// About what somebody has changed of these.
    pub restore: restore::Restore,
    /// A workload of the kind that is no longer wanted goes once the wanted one is there (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
    /// Workloads that get no pods, because these would take another actor's messages (QUE-3).
    pub stopped: Vec<Arc<WorkloadRecord>>,
}

/// The parts of a pass over a binding that lives, in the order in which they are done.
#[derive(Debug)]
pub struct Bind {
    /// About the actor's finalizers, first.
    pub finalizers: Finalizers,
    /// Write nothing to target and children: this spec has had what it asked for, once (FW-21).
    pub done_once: bool,
    /// About the queue.
    pub queue: QueueStep,
    /// About what scales the target; `None` as long as nobody knows what that is.
    pub scaling: Option<ScalingStep>,
    /// About our `ScaledObject`, where somebody changes it; `None` as long as nobody knows what is scaled.
    pub contest: Option<FieldDecision>,
    /// About who else sets the number of its pods.
    pub replicas: Option<FieldDecision>,
    /// What nobody scales any more, and nobody would wake.
    pub wake: Option<wake::Waking>,
    /// About the target's pod template.
    pub template: template::Templating,
    /// About what tells the target's owner that the queue scales it; `None`: nothing does, or not now (SO-5).
    pub claim: Option<claim::Claiming>,
    /// A workload that is bound for the first time: it is to say by whom (BIND-47).
    pub mark: Option<ObjectRef>,
    /// About a dry run of a pod with the sidecar.
    pub probe: probe::Probing,
    /// About pods that ran before; `None` while nobody can tell.
    pub roll: Option<Rolling>,
    /// Retired queues that go if they are empty.
    pub retired: Vec<QueueStatus>,
}
