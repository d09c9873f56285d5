//! Plans a standalone actor, whose workload we create.

mod scaling;

use k8s_openapi::jiff::Timestamp;
use scaling::plan_scaling_step;

use super::decision::{Plan, StandalonePlan};
use super::finalizers::plan_finalizers;
use super::queue::plan_queue;
use super::scaling_children::ScalingChildren;
use super::service_account::planned_service_account;
use super::steps::{ScalingStep, WorkloadStep};
use super::workload::{plan_workload, recorded_workload};
use super::{drift, retired, rollout_slot, stop};
use crate::reconcile::model::observed::{Observed, is_reconcile_once_done};
use crate::reconcile::model::outcome::ActiveOutcome;

/// Plans an active standalone actor.
pub(super) fn plan_standalone(observed: &Observed, now: Timestamp) -> Plan {
    let previously_applied = recorded_workload(observed).cloned();
    let mut workload = plan_workload(observed);
    // While the deletion waits until the queue is empty, a deleted workload is recreated even if `reconcile: Once` is
    // done: messages still wait for it.
    let is_recreation = observed.actor.metadata.deleting && workload == WorkloadStep::Create;
    let leaves_objects_alone =
        is_reconcile_once_done(&observed.actor, &observed.previous) && !is_recreation;
    let mut scaling = plan_scaling_step(observed, &workload, now);
    let stop = stop::plan_stop(observed, now);
    let (scaling_teardown, stopped) = stop.map_or_else(Default::default, |stop| {
        (Some(ScalingStep::Disabled(stop.scaling)), stop.workloads)
    });
    scaling = scaling.or(scaling_teardown);
    let mut initial =
        ActiveOutcome::initial(observed, scaling.as_ref().and_then(ScalingStep::fault));
    if observed.actor.annotations.paused {
        initial.fault = workload.fault();
        return Plan::Paused(Box::new(initial));
    }
    let drift = drift::plan_drift(observed, &mut workload, scaling.as_mut(), now);
    initial.contention.recheck_after = drift.recheck_after();
    Plan::Standalone(Box::new(StandalonePlan {
        initial,
        desired: observed.desired.clone(),
        ownership: observed.ownership.clone(),
        finalizers: plan_finalizers(observed),
        leaves_objects_alone,
        queue: observed.standalone().and_then(|_| plan_queue(observed)),
        service_account: planned_service_account(observed),
        scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
        scaling,
        drifts: drift.drifts(observed),
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
