//! Plans a standalone actor, whose workload we create.

mod scaling;

use k8s_openapi::jiff::Timestamp;
use scaling::plan_scaling_step;

use super::decision::{Ensure, Plan};
use super::finalizers::plan_finalizers;
use super::queue::plan_queue;
use super::scaling_children::ScalingChildren;
use super::service_account::planned_service_account;
use super::steps::{ScalingStep, WorkloadStep};
use super::workload::{plan_workload, recorded_workload};
use super::{restore, retired, rollout_slot, stop};
use crate::reconcile::model::observed::{Observed, is_once_completed};
use crate::reconcile::model::outcome::ActiveOutcome;

/// Plans an active standalone actor.
pub(super) fn plan_standalone(observed: &Observed, now: Timestamp) -> Plan {
    let previously_applied = recorded_workload(observed).cloned();
    let mut workload = plan_workload(observed);
    // While the deletion waits until the queue is empty, a deleted workload is recreated even if `reconcile: Once` is done: messages still wait
    // for it.
    let is_recreation = observed.actor.metadata.deleting && workload == WorkloadStep::Create;
    let once_completed = is_once_completed(&observed.actor, &observed.previous) && !is_recreation;
    let mut scaling = plan_scaling_step(observed, &workload, now);
    let stop = stop::plan_stop(observed, now);
    let (unscaled, stopped) = stop.map_or_else(Default::default, |stop| {
        (Some(ScalingStep::Disabled(stop.scaling)), stop.workloads)
    });
    scaling = scaling.or(unscaled);
    let mut initial =
        ActiveOutcome::initial(observed, scaling.as_ref().and_then(ScalingStep::fault));
    if observed.actor.annotations.paused {
        initial.fault = workload.fault();
        return Plan::Paused(Box::new(initial));
    }
    let restore = restore::plan_restore(observed, &mut workload, scaling.as_mut(), now);
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
        slot_step: rollout_slot::plan_rollout_slot(observed, &workload),
        found_workload: observed.workload.ours().cloned(),
        previously_applied,
        workload,
        retired: retired::plan_check(observed),
        previous_workload: observed
            .previous_workload
            .clone()
            .filter(|previous| observed.desired.is_ok() && !previous.metadata.deleting),
    }))
}
