//! Plans a reconcile from the observed state. All decisions are made here, without side effects.

pub mod autoscaler_handoff;
mod binding;
pub mod child;
pub mod decision;
pub mod deletion;
pub mod evict;
pub mod finalizers;
pub mod order;
pub mod pace;
pub mod probe;
pub mod queue;
pub mod queue_removal;
pub mod replicas;
pub mod restore;
pub mod retired;
pub mod rollout;
pub mod scale_from_zero;
pub mod scaled_object_contention;
pub mod scaling;
pub mod scaling_children;
mod scaling_gate;
mod service_account;
pub mod steps;
mod stop;
pub mod template;
pub mod unbind;
pub mod workload;

use k8s_openapi::jiff::Timestamp;
use scaling::{plan_removal, plan_scaling};
use scaling_children::ScalingChildren;
use service_account::planned_service_account;
use workload::plan_workload;

use super::desired::drain::Drain;
use super::model::child::Child;
use super::model::observed::{Observed, is_once_completed};
use super::model::outcome::ActiveOutcome;
use crate::reconcile::plan::decision::{Ensure, Plan};
use crate::reconcile::plan::finalizers::plan_finalizers;
use crate::reconcile::plan::queue::plan_queue;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::record::ScaleTarget;

pub use child::{ChildStep, is_unchanged, not_owned, plan_child, recorded};

/// Plans a reconcile of one actor.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    match &observed.drain {
        _ if !observed.actor.metadata.deleting => {}
        Some(Drain::Waiting(_)) => {}
        Some(Drain::Confirming(wait)) => return Plan::AwaitEmpty(*wait),
        Some(Drain::Empty | Drain::LeftBehind { .. }) | None => {
            return Plan::Delete(Box::new(deletion::plan(observed, now)));
        }
    }
    if observed.binding.is_some() {
        return binding::plan(observed, now);
    }
    let mut workload = plan_workload(observed);
    // While the actor drains, a deleted workload is recreated even if `reconcile: Once` is done: messages still wait
    // for it.
    let is_recreation = observed.actor.metadata.deleting && workload == WorkloadStep::Create;
    let once_completed = is_once_completed(&observed.actor, &observed.previous) && !is_recreation;
    let stop = stop::plan_stop(observed, now);
    let (unscaled, stopped) = stop.map_or_else(Default::default, |stop| {
        (Some(ScalingStep::Disabled(stop.scaling)), stop.workloads)
    });
    let mut scaling = plan_scaling_step(observed, &workload, now).or(unscaled);
    let mut initial =
        ActiveOutcome::initial(observed, scaling.as_ref().and_then(ScalingStep::fault));
    if observed.actor.annotations.paused {
        initial.fault = workload.fault();
        return Plan::Paused(Box::new(initial));
    }
    let restore = restore::plan(observed, &mut workload, scaling.as_mut(), now);
    initial.contention.recheck_after = restore.recheck_after();
    Plan::Ensure(Box::new(Ensure {
        initial,
        desired: observed.desired.clone(),
        ownership: observed.ownership.clone(),
        finalizers: plan_finalizers(observed),
        once_completed,
        queue: observed.standalone().and_then(|_| plan_queue(observed)),
        service_account: planned_service_account(observed),
        scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
        scaling,
        drifts: restore.drifts(observed),
        workloads_to_stop: stopped,
        pacing: pace::plan_pacing(observed, &workload),
        found_workload: observed.workload.ours().cloned(),
        previously_applied: workload::recorded_workload(observed).cloned(),
        workload,
        retired: retired::queues_to_check(observed),
        former_workload: observed
            .former_workload
            .clone()
            .filter(|former| observed.desired.is_ok() && !former.metadata.deleting),
    }))
}

fn plan_scaling_step(
    observed: &Observed,
    workload: &WorkloadStep,
    now: Timestamp,
) -> Option<ScalingStep> {
    let (standalone, keda) = (observed.standalone()?, &observed.scaling);
    let Some(desired) = &standalone.scaling else {
        let removal = plan_removal(&keda.scaled_object, &keda.trigger_authentication, now);
        return Some(ScalingStep::Disabled(removal));
    };
    let name = &*observed.key().name;
    Some(ScalingStep::Enabled(plan_scaling(
        &scaling::ScalingInputs {
            actor: name,
            desired: desired.as_ref(),
            installed: keda.installed,
            target: &ScaleTarget::workload(standalone.kind, name),
            target_exists: *workload == WorkloadStep::Create
                || matches!(observed.workload, Child::Ours(_)),
            scaled_object: &keda.scaled_object,
            trigger_authentication: &keda.trigger_authentication,
            hpas: &keda.hpas,
            scaled_objects: &keda.scaled_objects,
            inventory: &observed.previous.inventory,
        },
    )))
}

#[cfg(test)]
mod tests;
