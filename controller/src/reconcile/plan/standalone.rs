//! Plans a standalone actor, whose workload we create.

mod scaling;

use k8s_openapi::jiff::Timestamp;
use scaling::plan_scaling_step;

use super::decision::{ActivePlan, CommonPlan, ModePlan, Plan, StandalonePlan};
use super::finalizers::plan_finalizers;
use super::queue::plan_queue;
use super::scaling_children::ScalingChildren;
use super::service_account::planned_service_account;
use super::steps::{ScalingStep, WorkloadStep};
use super::workload::{plan_workload, recorded_workload};
use super::{drift, retired, rollout_slot, stop};
use crate::reconcile::model::observed::{Observed, is_reconcile_once_done};
use crate::reconcile::model::outcome::{CommonOutcome, StandaloneOutcome};

/// Plans an active standalone actor.
pub(super) fn plan_standalone(observed: &Observed, now: Timestamp) -> Plan {
    let previously_applied = recorded_workload(observed).cloned();
    let workload = plan_workload(observed);
    // While the deletion waits until the queue is empty, a deleted workload is recreated even if `reconcile: Once` is
    // done: messages still wait for it.
    let is_recreation = observed.actor.metadata.deleting && workload == WorkloadStep::Create;
    let leaves_objects_alone =
        is_reconcile_once_done(&observed.actor, &observed.previous) && !is_recreation;
    let scaling = plan_scaling_step(observed, &workload, now);
    let stop = stop::plan_stop(observed, now);
    let (scaling_teardown, stopped) = stop.map_or_else(Default::default, |stop| {
        (Some(ScalingStep::Disabled(stop.scaling)), stop.workloads)
    });
    let scaling = scaling.or(scaling_teardown);
    let scaling_fault = scaling.as_ref().and_then(ScalingStep::fault);
    if observed.actor.annotations.paused {
        let mut outcome = StandaloneOutcome::initial(observed, scaling_fault);
        outcome.common.fault = workload.fault();
        return Plan::Paused(Box::new(outcome.into()));
    }
    let initial = CommonOutcome::initial(observed, scaling_fault);
    let drift = drift::plan_drift(observed, &workload, scaling.as_ref(), now);
    let workload = drift.restrict_workload(workload);
    let scaling = scaling.map(|step| step.restricted_by(drift.scaling_restriction()));
    let is_actionable = observed.desired.is_ok();
    let previous_workload = observed.previous_workload.clone();
    let steps = StandalonePlan {
        desired: observed.desired.clone(),
        ownership: observed.ownership.clone(),
        service_account: planned_service_account(observed),
        drift_recheck_after: drift.recheck_after(),
        drifts: drift.drifts(observed),
        workloads_to_stop: stopped,
        slot_step: rollout_slot::plan_rollout_slot(observed, &workload),
        found_workload: observed.workload.ours().cloned(),
        previously_applied,
        workload,
        previous_workload: previous_workload
            .filter(|previous| is_actionable && !previous.metadata.deleting),
    };
    Plan::Active(Box::new(ActivePlan {
        finalizers: plan_finalizers(observed),
        frees_slot: false,
        initial,
        common: CommonPlan {
            queue: observed.standalone().and_then(|_| plan_queue(observed)),
            leaves_objects_alone,
            scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
            scaling,
        },
        mode: ModePlan::Standalone(Box::new(steps)),
        retired: retired::plan_check(observed),
    }))
}
