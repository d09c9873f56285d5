//! Reconciles the runtime script, the workload and its scaling.
//!
//! Postpones the workload's update here if there is no rollout slot: all actors share the slots, and another one may
//! have taken the last since this reconcile was planned (SAFE-36).

use super::child::{apply_child, delete_child};
use super::stop::stop;
use super::workload::ensure_workload;
use super::{contention, scaling};
use crate::cluster::rollouts::WorkloadRollouts;
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::model::outcome::{CommonOutcome, InterruptedStep, StandaloneOutcome};
use crate::reconcile::plan::decision::{CommonPlan, StandalonePlan};
use crate::reconcile::plan::drift;
use crate::reconcile::plan::rollout_slot::RolloutSlotStep;
use crate::reconcile::plan::step_conditions::{
    ends_after_queue, must_report_queue, removes_service_account, replaces_previous,
};
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::reconcile::plan::workload::WorkloadInputs;
use crate::record::{ActorRecord, Key};

/// Executes the plan of an active actor, from the `initial` outcome with the state of its queue.
pub(super) async fn apply_standalone(
    context: &Context,
    actor: &ActorRecord,
    common: CommonPlan,
    plan: StandalonePlan,
    initial: CommonOutcome,
) -> Result<StandaloneOutcome, Error> {
    let mut outcome = StandaloneOutcome {
        common: initial,
        workload: plan.found_workload.clone(),
        drift_recheck_after: plan.drift_recheck_after,
        ..StandaloneOutcome::default()
    };
    match (&plan.desired, &common.queue) {
        (Ok(_), Some(queue_plan)) => {
            let queue = &outcome.common.queue;
            if ends_after_queue(common.leaves_objects_alone, &plan, queue) {
                return Ok(outcome);
            }
            let reports_queue = must_report_queue(queue, queue_plan.was_verified);
            let key = &actor.metadata.key;
            match ensure_children(context, key, common, plan, &mut outcome).await {
                Err(error) if reports_queue => {
                    let interruption = InterruptedStep::Other.by(error);
                    outcome.common.interrupted = Some(Box::new(interruption));
                }
                ensured => ensured?,
            }
        }
        (Ok(_), None) => {}
        (Err(fault), _) => {
            if let Some(ScalingStep::Disabled(teardown)) = common.scaling {
                outcome.common.keda_deadline = teardown.deadline;
                scaling::remove(context, &common.scaling_children).await?;
                stop(context, actor, plan.workloads_to_stop, fault, &mut outcome).await?;
            }
        }
    }
    Ok(outcome)
}

/// Ensures what consumes the queue: the runtime script, the workload and its scaling.
async fn ensure_children(
    context: &Context,
    key: &Key,
    common: CommonPlan,
    mut plan: StandalonePlan,
    outcome: &mut StandaloneOutcome,
) -> Result<(), Error> {
    let Some(standalone) = plan
        .desired
        .as_ref()
        .ok()
        .and_then(|desired| desired.standalone())
    else {
        return Ok(());
    };
    if !acquire_rollout_slot(&context.workload_rollouts, key, plan.slot_step) {
        outcome.postponed = true;
        plan.workload = WorkloadStep::Keep;
    }
    if let Err(failed) = ensure_prerequisites(context, key, &plan, &mut outcome.common).await {
        outcome.common.fault = Some(failed.fault()?);
        return Ok(());
    }
    let config_map = scaling::ensure_config_map(context, &common.scaling_children).await?;
    let drift = contention::find_causes(context, plan.drifts).await?;
    let inputs = WorkloadInputs {
        ownership: &plan.ownership,
        standalone,
        applied: plan.previously_applied.as_ref(),
    };
    ensure_workload(context, inputs, plan.workload, plan.found_workload, outcome).await?;
    if let Some(step) = common.scaling {
        let exists = outcome.workload.is_some();
        let children = &common.scaling_children;
        let common = &mut outcome.common;
        let scaled = scaling::scale(context, step, children, config_map, exists, common).await;
        common.interrupted = scaled
            .err()
            .map(|error| Box::new(InterruptedStep::Scaling.by(error)));
    }
    outcome.restored = drift::only_applied(drift, &outcome.common.applied);
    if outcome.common.interrupted.is_some() {
        return Ok(());
    }
    if let Some(previous) = plan
        .previous_workload
        .filter(|_| replaces_previous(standalone.kind, outcome))
    {
        context.workloads.delete(&previous).await?;
    }
    if removes_service_account(&outcome.common) {
        delete_child(&context.service_accounts, &plan.service_account).await?;
    }
    Ok(())
}

/// Acquires a slot if the workload's update needs one. Returns whether to update it in this reconcile (SAFE-36).
pub(super) fn acquire_rollout_slot(
    rollouts: &WorkloadRollouts,
    key: &Key,
    slot_step: RolloutSlotStep,
) -> bool {
    match slot_step {
        RolloutSlotStep::NotNeeded => true,
        RolloutSlotStep::Acquire => rollouts.begin(key),
        RolloutSlotStep::Report { rolling, all_ready } => {
            rollouts.record_state(key, rolling, all_ready);
            true
        }
    }
}

/// Ensures what pods cannot start without: the account that applies the workload, the pods' `ServiceAccount`, and the
/// script that they mount.
async fn ensure_prerequisites(
    context: &Context,
    Key { namespace, .. }: &Key,
    plan: &StandalonePlan,
    outcome: &mut CommonOutcome,
) -> Result<(), StepError> {
    if plan.workload.writes() {
        context.impersonation.check(namespace).await?;
    }
    let account = apply_child(&context.service_accounts, &plan.service_account).await?;
    outcome.applied.extend(account.map(|it| it.entry));
    let script = &context.runtime_script;
    script.ensure(&context.config_maps, namespace).await
}
