//! The plan of one reconcile.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{InventoryEntry, QueueStatus};
use asya_shared::resolve::ObjectRef;
use k8s_openapi::api::core::v1::ServiceAccount;

use crate::broker::health::Moment;
use crate::fault::Fault;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::desired::Desired;
use crate::reconcile::model::child::Ownership;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::child::PlannedChild;
use crate::reconcile::plan::contest::ContestedField;
use crate::reconcile::plan::finalizers::Finalizers;
use crate::reconcile::plan::pace::Pacing;
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::roll::inputs::RollInputs;
use crate::reconcile::plan::scaling_children::ScalingChildren;
use crate::reconcile::plan::steps::{QueueStep, ScalingStep, WorkloadStep};
use crate::reconcile::plan::{claim, deletion, probe, restore, template, wake};
use crate::record::{ChildRecord, WorkloadRecord};

/// What one reconcile does.
#[derive(Debug)]
pub enum Plan {
    /// The actor is paused: write no child and no queue, and query no broker.
    Rest(Box<Ensured>),
    /// Bring queue and workload to the desired state.
    Ensure(Box<Ensure>),
    /// Bring the queue to the desired state; another controller manages the workload.
    Bind(Box<Bind>),
    /// Tear nothing down yet: check again after this delay whether the queue is empty.
    Confirm(Duration),
    /// Tear down what the operator created.
    Delete(Box<deletion::Deletion>),
}

impl Plan {
    /// Takes what to do about the actor's finalizers, before anything else.
    pub fn take_finalizers(&mut self) -> Finalizers {
        match self {
            Self::Ensure(plan) => std::mem::take(&mut plan.finalizers),
            Self::Bind(plan) => std::mem::take(&mut plan.finalizers),
            Self::Rest(_) | Self::Confirm(_) | Self::Delete(_) => Finalizers::Keep,
        }
    }

    /// Takes the retired queues to check after everything else, and whether the actor binds a target.
    pub fn take_retired(&mut self) -> Option<(Vec<QueueStatus>, bool)> {
        match self {
            Self::Ensure(plan) => Some((std::mem::take(&mut plan.retired), false)),
            Self::Bind(plan) => Some((std::mem::take(&mut plan.retired), true)),
            Self::Rest(_) | Self::Confirm(_) | Self::Delete(_) => None,
        }
    }

    /// Whether only the actor's queues remain to be deleted before its finalizer is removed.
    pub fn is_the_end(&self) -> bool {
        matches!(self, Self::Delete(plan) if matches!(plan.steps.then, deletion::Then::Finish { .. }))
    }
}

/// The steps for a standalone actor that is not being torn down, in execution order.
#[derive(Debug)]
pub struct Ensure {
    /// The outcome if nothing is written; the steps update it.
    pub before: Ensured,
    /// The desired state, or why the pods have to stop.
    pub desired: Result<Arc<Desired>, Fault>,
    pub ownership: Ownership,
    pub finalizers: Finalizers,
    /// Leave the children alone: `reconcile: Once` is done for this spec (FW-21).
    pub done_once: bool,
    pub queue: QueueStep,
    /// When the observation of the queue began.
    pub began: Moment,
    /// The queue was verified before, so one that is created now had been lost.
    pub recreates_queue: bool,
    /// Applied before the workload, deleted after it.
    pub account: PlannedChild<ChildRecord<ServiceAccount>>,
    pub workload: WorkloadStep,
    /// The object under the workload's name.
    pub found: Option<Arc<WorkloadRecord>>,
    /// The workload as last applied, from status.
    pub applied_before: Option<InventoryEntry>,
    /// What the step means for the number of concurrent rollouts.
    pub pacing: Pacing,
    /// Retired queues to delete if they are empty.
    pub retired: Vec<QueueStatus>,
    /// Applied once the workload exists.
    pub scaling: Option<ScalingStep>,
    pub scaling_children: ScalingChildren,
    /// The drift that is restored now.
    pub drifts: Vec<restore::Drift>,
    /// A workload of the kind that is no longer desired, deleted once the desired one exists (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
    /// Workloads that must have no pods, because these would consume another actor's messages (QUE-3).
    pub stopped: Vec<Arc<WorkloadRecord>>,
}

/// The steps for a binding that is not being torn down, in execution order.
#[derive(Debug)]
pub struct Bind {
    /// The outcome if nothing is written; the steps update it.
    pub before: Ensured,
    /// The desired state; `None` if the spec cannot be acted on.
    pub desired: Option<Arc<Desired>>,
    pub finalizers: Finalizers,
    /// Leave target and children alone: `reconcile: Once` is done for this spec (FW-21).
    pub done_once: bool,
    pub queue: QueueStep,
    /// When the observation of the queue began.
    pub began: Moment,
    /// The queue was verified before, so one that is created now had been lost.
    pub recreates_queue: bool,
    /// Scaling of the target; `None` while it is unknown what to scale.
    pub scaling: Option<ScalingStep>,
    pub scaling_children: ScalingChildren,
    /// How the fields below that other managers contest are recorded.
    pub contested: ContestedFields,
    /// Contention over our `ScaledObject`; `None` while it is unknown what to scale.
    pub contest: Option<FieldDecision>,
    /// Contention over the target's number of pods.
    pub replicas: Option<FieldDecision>,
    /// A target that nothing scales any more, and nothing would wake.
    pub wake: Option<wake::Waking>,
    /// Our part of the target's pod template.
    pub template: template::Templating,
    pub template_inputs: Option<template::write::TemplateInputs>,
    /// The annotation that tells the target's owner that the queue scales it; `None`: there is none, or it is not due
    /// (SO-5).
    pub claim: Option<claim::Claiming>,
    /// A workload that is bound for the first time, to be marked with the actor that binds it (BIND-47).
    pub mark: Option<ObjectRef>,
    /// Dry run of a pod with the sidecar.
    pub probe: probe::Probing,
    pub probe_inputs: probe::ProbeInputs,
    /// Rollout of pods that started before the binding; `None` while it cannot be decided.
    pub roll: Option<Rolling>,
    pub roll_inputs: Option<RollInputs>,
    /// The actor gives up its rollout slot: no rollout is planned, although all about the target is known.
    pub frees_slot: bool,
    /// Retired queues to delete if they are empty.
    pub retired: Vec<QueueStatus>,
}

/// The contested fields of a binding.
#[derive(Debug)]
pub struct ContestedFields {
    pub scaled_object: ContestedField,
    /// `None` while the target is not resolved.
    pub replicas: Option<ContestedField>,
    pub claim: ContestedField,
}
