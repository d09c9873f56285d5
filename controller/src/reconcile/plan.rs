//! Plans a reconcile from the observed state. Every decision is made here; nothing here has side effects.

mod binding;
mod child;
pub mod claim;
mod contest;
pub mod decision;
pub mod deletion;
pub mod evict;
pub mod finalizers;
pub mod pace;
pub mod probe;
pub mod queue;
mod replicas;
pub mod restore;
pub mod retired;
pub mod roll;
pub mod scaling;
mod scaling_gate;
pub mod steps;
mod stop;
pub mod template;
pub mod unbind;
pub mod wake;

use asya_shared::inject::Replicas;
use k8s_openapi::jiff::Timestamp;
use scaling::{plan_removal, plan_scaling};

use super::desired::Standalone;
use super::desired::drain::Drain;
use super::model::child::Child;
use super::model::observed::{Observed, is_done_once};
use crate::reconcile::plan::decision::{Ensure, Plan, Rest};
use crate::reconcile::plan::finalizers::plan_finalizers;
use crate::reconcile::plan::queue::plan_queue;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::record::{ScaleTarget, WorkloadRecord};

pub use child::{ChildStep, is_unchanged, not_owned, plan_child, recorded};

/// Plans one reconcile of an actor.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    match &observed.drain {
        _ if !observed.actor.metadata.deleting => {}
        Some(Drain::Works(_)) => {}
        Some(Drain::Confirms(wait)) => return Plan::Confirm(*wait),
        Some(Drain::Empty | Drain::Abandoned { .. }) | None => {
            return Plan::Delete(deletion::plan_deletion(observed, now));
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
        return Plan::Rest(Rest {
            workload: workload.fault(),
            scaling: scaling.as_ref().and_then(ScalingStep::fault),
        });
    }
    let restore = restore::plan(observed, &mut workload, scaling.as_mut(), now);
    Plan::Ensure(Ensure {
        finalizers: plan_finalizers(observed),
        done_once,
        queue: plan_queue(observed),
        service_account: plan_service_account(observed),
        scaling,
        restore,
        stopped,
        paced: pace::is_of_installation(observed, &workload),
        workload,
        retired: retired::looks(observed),
        former: observed
            .former
            .clone()
            .filter(|former| observed.desired.is_ok() && !former.metadata.deleting),
    })
}

fn plan_workload(observed: &Observed) -> WorkloadStep {
    let Some(own) = observed.standalone() else {
        return WorkloadStep::Keep;
    };
    if let (Child::Foreign(account), Some(_)) = (&observed.service_account, &own.service_account) {
        return WorkloadStep::Refuse(not_owned("ServiceAccount", &account.metadata));
    }
    plan_found(observed, &observed.workload, own)
}

/// Plans the step for the object found under the workload's name.
pub(super) fn plan_found(
    observed: &Observed,
    found: &Child<WorkloadRecord>,
    own: &Standalone,
) -> WorkloadStep {
    match found {
        Child::Absent => WorkloadStep::Create,
        Child::Foreign(workload) => {
            WorkloadStep::Refuse(not_owned(workload.kind.name(), &workload.metadata))
        }
        // Its deletion triggers a reconcile, which recreates it.
        Child::Ours(workload) if workload.metadata.deleting => WorkloadStep::Keep,
        Child::Ours(workload) if is_as_wanted(observed, workload, own) => WorkloadStep::Keep,
        Child::Ours(workload) => update(observed, workload, own),
    }
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

fn update(observed: &Observed, workload: &WorkloadRecord, own: &Standalone) -> WorkloadStep {
    let take_over = workload.last.former;
    let owned = workload.owns_replicas || take_over.is_some();
    let enforced = matches!(own.workload.replicas, Replicas::Enforced(_));
    WorkloadStep::Update {
        take_over,
        hand_over: owned && !enforced,
        reclaim: reclaims(observed, workload),
    }
}

/// Fields are reclaimed only on request, and once for each workload (FW-22).
fn reclaims(observed: &Observed, workload: &WorkloadRecord) -> bool {
    observed.actor.annotations.reclaim_fields && workload.reclaimable
}

/// Whether the workload is as last applied. `spec.replicas` may have a field manager of its own, so its ownership is
/// checked separately.
fn is_as_wanted(observed: &Observed, workload: &WorkloadRecord, own: &Standalone) -> bool {
    let (kind, wanted) = (workload.kind.name(), &own.workload);
    let enforced = matches!(wanted.replicas, Replicas::Enforced(_));
    let (metadata, last) = (&workload.metadata, &workload.last);
    let inventory = &observed.previous.inventory;
    (workload.owns_replicas || !enforced)
        && !reclaims(observed, workload)
        && is_unchanged(kind, metadata, last, &wanted.kept.hash, inventory)
}

#[cfg(test)]
mod tests;
