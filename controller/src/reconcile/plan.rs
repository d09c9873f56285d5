//! Plans a reconcile from the observed state. Every decision is made here; nothing here has side effects.

mod binding;
pub mod child;
pub mod claim;
pub mod contest;
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
pub mod roll;
pub mod scaling;
pub mod scaling_children;
mod scaling_gate;
pub mod steps;
mod stop;
pub mod template;
pub mod unbind;
pub mod wake;
pub mod workload;

use asya_shared::inject::service_account_name;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use scaling::{plan_removal, plan_scaling};
use scaling_children::ScalingChildren;
use workload::plan_workload;

use super::desired::Standalone;
use super::desired::drain::Drain;
use super::model::child::Child;
use super::model::observed::{Observed, is_done_once};
use super::model::outcome::Ensured;
use crate::reconcile::plan::child::PlannedChild;
use crate::reconcile::plan::decision::{Ensure, Plan};
use crate::reconcile::plan::finalizers::plan_finalizers;
use crate::reconcile::plan::queue::plan_queue;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::record::{ChildRecord, Key, ScaleTarget};

pub use child::{ChildStep, is_unchanged, not_owned, plan_child, recorded};

/// Plans one reconcile of an actor.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    match &observed.drain {
        _ if !observed.actor.metadata.deleting => {}
        Some(Drain::Works(_)) => {}
        Some(Drain::Confirms(wait)) => return Plan::Confirm(*wait),
        Some(Drain::Empty | Drain::Abandoned { .. }) | None => {
            return Plan::Delete(Box::new(deletion::plan(observed, now)));
        }
    }
    if observed.binding.is_some() {
        return binding::plan(observed, now);
    }
    let mut workload = plan_workload(observed);
    // While the actor drains, a deleted workload is recreated even if `reconcile: Once` is done: messages still wait
    // for it.
    let made_again = observed.actor.metadata.deleting && workload == WorkloadStep::Create;
    let done_once = is_done_once(&observed.actor, &observed.previous) && !made_again;
    let stop = stop::plan_stop(observed, now);
    let (unscaled, stopped) = stop.map_or_else(Default::default, |stop| {
        (Some(ScalingStep::Unwanted(stop.scaling)), stop.workloads)
    });
    let mut scaling = plan_scaling_step(observed, &workload, now).or(unscaled);
    if observed.actor.annotations.paused {
        let mut before = Ensured::before(observed, scaling.as_ref().and_then(ScalingStep::fault));
        before.fault = workload.fault();
        return Plan::Rest(Box::new(before));
    }
    let restore = restore::plan(observed, &mut workload, scaling.as_mut(), now);
    let mut before = Ensured::before(observed, scaling.as_ref().and_then(ScalingStep::fault));
    before.contests.again = restore.again();
    Plan::Ensure(Box::new(Ensure {
        before,
        desired: observed.desired.clone(),
        ownership: observed.ownership.clone(),
        finalizers: plan_finalizers(observed),
        done_once,
        queue: plan_queue(observed),
        began: observed.began,
        recreates_queue: queue::was_verified(observed),
        account: planned_account(observed, &plan_service_account(observed)),
        scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
        scaling,
        drifts: restore.drifts(observed),
        stopped,
        pacing: pace::plan_pacing(observed, &workload),
        found: observed.workload.ours().cloned(),
        applied_before: workload::recorded_workload(observed).cloned(),
        workload,
        retired: retired::looks(observed),
        former: observed
            .former
            .clone()
            .filter(|former| observed.desired.is_ok() && !former.metadata.deleting),
    }))
}

fn plan_service_account(observed: &Observed) -> ChildStep {
    let Some(own) = observed.standalone() else {
        return ChildStep::Keep;
    };
    let wanted = own.service_account.as_ref();
    let inventory = &observed.previous.inventory;
    match plan_child(&observed.service_account, wanted, inventory) {
        // Old pods use the `ServiceAccount` to renew their tokens for as long as they run.
        ChildStep::Delete(_) if has_old_pods(observed, own) => ChildStep::Wait,
        step => step,
    }
}

fn planned_account(
    observed: &Observed,
    step: &ChildStep,
) -> PlannedChild<ChildRecord<ServiceAccount>> {
    let Key { namespace, name } = observed.key();
    let own = observed.standalone();
    PlannedChild::new(
        &observed.ownership,
        Key::new(namespace, &service_account_name(name)),
        (step, &observed.service_account),
        own.and_then(|own| own.service_account.as_ref()),
    )
}

fn has_old_pods(observed: &Observed, own: &Standalone) -> bool {
    let current = Some(&*own.workload.template_hash);
    let mut pods = observed.pods.iter();
    pods.any(|pod| !pod.finished && pod.template_hash.as_deref() != current)
}

fn plan_scaling_step(
    observed: &Observed,
    workload: &WorkloadStep,
    now: Timestamp,
) -> Option<ScalingStep> {
    let (own, seen) = (observed.standalone()?, &observed.scaling);
    let Some(wanted) = &own.scaling else {
        let removal = plan_removal(&seen.scaled_object, &seen.trigger_authentication, now);
        return Some(ScalingStep::Unwanted(removal));
    };
    let name = &*observed.key().name;
    Some(ScalingStep::Wanted(plan_scaling(&scaling::ScalingFacts {
        actor: name,
        wanted: wanted.as_ref(),
        installed: seen.installed,
        target: &ScaleTarget::workload(own.kind, name),
        target_exists: *workload == WorkloadStep::Create
            || matches!(observed.workload, Child::Ours(_)),
        scaled_object: &seen.scaled_object,
        trigger_authentication: &seen.trigger_authentication,
        hpas: &seen.hpas,
        scaled_objects: &seen.scaled_objects,
        inventory: &observed.previous.inventory,
    })))
}

#[cfg(test)]
mod tests;
