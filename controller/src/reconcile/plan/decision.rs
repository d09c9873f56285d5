//! The plan of one reconcile.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::InventoryEntry;
use asya_shared::config::SecretKeyRef;
use asya_shared::resolve::ObjectRef;
use k8s_openapi::api::core::v1::ServiceAccount;

use crate::fault::Fault;
use crate::reconcile::contention::FieldDecision;
use crate::reconcile::desired::Desired;
use crate::reconcile::model::child::ChildOwnership;
use crate::reconcile::model::outcome::{ActiveOutcome, CommonOutcome};
use crate::reconcile::plan::child::PlannedChild;
use crate::reconcile::plan::contested_fields::ContestedFields;
use crate::reconcile::plan::finalizers::Finalizers;
use crate::reconcile::plan::queue::QueuePlan;
use crate::reconcile::plan::retired::RetiredCheck;
use crate::reconcile::plan::rollout::params::PlannedRollout;
use crate::reconcile::plan::rollout_slot::RolloutSlotStep;
use crate::reconcile::plan::scaling_children::ScalingChildren;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::reconcile::plan::{
    autoscaler_handoff, deletion, drift, probe, scale_from_zero, template,
};
use crate::record::{ChildRecord, WorkloadRecord};

#[derive(Debug)]
pub enum Plan {
    /// The actor is paused: write no child and no queue, and query no broker.
    Paused(Box<ActiveOutcome>),
    /// The actor is active: bring its queue to the desired state, then its workload or target.
    Active(Box<ActivePlan>),
    /// The actor is being deleted, but its queue may not be empty yet: check again after this delay.
    AwaitEmpty(Duration),
    /// Tear down what the operator created.
    Delete(Box<deletion::Deletion>),
}

impl Plan {
    /// Whether only the actor's queues remain to be deleted before its finalizer is removed.
    pub fn is_final_step(&self) -> bool {
        matches!(self, Self::Delete(plan) if matches!(plan.steps.next, deletion::NextPhase::FinalStep { .. }))
    }
}

/// The steps for an active actor, in execution order.
#[derive(Debug)]
pub struct ActivePlan {
    pub finalizers: Finalizers,
    /// Release the actor's rollout slot: the target is known, and no rollout is planned.
    pub frees_slot: bool,
    /// The outcome if nothing is written, which the steps update.
    pub initial: CommonOutcome,
    pub common: CommonPlan,
    pub mode: ModePlan,
    /// Retired queues to delete if they are empty.
    pub retired: RetiredCheck,
}

/// The steps that both modes share; each mode executes them at its own point.
#[derive(Debug)]
pub struct CommonPlan {
    /// Executed before the workload or target is touched; `None` if the spec cannot be acted on.
    pub queue: Option<QueuePlan>,
    /// Leave the children and the target alone: `reconcile: Once` is done for this spec (FW-21).
    pub leaves_objects_alone: bool,
    /// Scaling of the workload, once that exists, or of the target; `None` while it is unknown what to scale.
    pub scaling: Option<ScalingStep>,
    pub scaling_children: ScalingChildren,
}

/// The steps of one mode.
#[derive(Debug)]
pub enum ModePlan {
    Standalone(Box<StandalonePlan>),
    /// Another controller manages the workload.
    Binding(Box<BindingPlan>),
}

/// The steps for an active standalone actor, in execution order.
#[derive(Debug)]
pub struct StandalonePlan {
    /// The desired state, or the fault that requires the pods to stop.
    pub desired: Result<Arc<Desired>, Fault>,
    pub ownership: ChildOwnership,
    /// Applied before the workload, deleted after it.
    pub service_account: PlannedChild<ChildRecord<ServiceAccount>>,
    pub workload: WorkloadStep,
    /// The object under the workload's name.
    pub found_workload: Option<Arc<WorkloadRecord>>,
    /// The workload as last applied, from status.
    pub previously_applied: Option<InventoryEntry>,
    /// How the workload step counts against the limit of concurrent rollouts.
    pub slot_step: RolloutSlotStep,
    /// The drift to restore now.
    pub drifts: Vec<drift::Drift>,
    /// When to look for drift again.
    pub drift_recheck_after: Option<Duration>,
    /// A workload of the kind that is no longer desired, deleted once the desired one exists (WRK-6).
    pub previous_workload: Option<Arc<WorkloadRecord>>,
    /// Workloads to scale to zero, because their pods would consume another actor's messages (QUE-3).
    pub workloads_to_stop: Vec<Arc<WorkloadRecord>>,
}

/// The steps for an active binding, in execution order.
#[derive(Debug)]
pub struct BindingPlan {
    /// How contention over the fields below is recorded.
    pub contested: ContestedFields,
    pub target: TargetSteps,
    /// The Secrets to find in the target's namespace before a pod gets the sidecar: it could not start without them.
    pub secrets_to_find: Vec<SecretKeyRef>,
    /// Dry run of a pod with the sidecar.
    pub probe: probe::PlannedProbe,
    /// Rollout of pods that started before the binding; `None` while it cannot be decided.
    pub rollout: Option<PlannedRollout>,
}

/// The steps for the target of a binding and its contested fields; none while they are left alone.
#[derive(Debug, Default)]
pub struct TargetSteps {
    /// Contention over our `ScaledObject`; `None` while it is unknown what to scale.
    pub scaled_object_contention: Option<FieldDecision>,
    /// Contention over the target's number of pods.
    pub replicas_contention: Option<FieldDecision>,
    /// A target at zero replicas that no autoscaler would scale up any more.
    pub scale_from_zero: Option<scale_from_zero::ScaleFromZeroStep>,
    /// Our fields of the target's pod template.
    pub template: template::TemplateStep,
    pub template_params: Option<template::write::TemplateParams>,
    /// The autoscaler handoff annotation; `None` if the target needs none, or it is not due (SO-5).
    pub handoff: Option<autoscaler_handoff::HandoffStep>,
    /// A workload that is bound for the first time, to annotate with the name of the actor (BIND-47).
    pub actor_annotation: Option<ObjectRef>,
}
