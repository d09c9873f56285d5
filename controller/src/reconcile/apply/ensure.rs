//! Reconciles the queue, the runtime script, the workload and its scaling.

use super::child::{apply_child, delete_child};
use super::queue::ensure_queue;
use super::workload::ensure_workload;
use super::{restored, scaling, stop};
use crate::cluster::rollouts::WorkloadRollouts;
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::decision::Ensure;
use crate::reconcile::plan::order::{ends_after_queue, replaces_former};
use crate::reconcile::plan::pace::Pacing;
use crate::reconcile::plan::restore;
use crate::reconcile::plan::steps::WorkloadStep;
use crate::reconcile::plan::workload::WorkloadFacts;
use crate::record::{ActorRecord, Key};

/// Executes the plan of a live actor.
pub(super) async fn ensure(
    context: &Context,
    actor: &ActorRecord,
    mut plan: Box<Ensure>,
) -> Result<Ensured, Error> {
    let mut ensured = std::mem::take(&mut plan.before);
    let desired = match &plan.desired {
        Ok(desired) => desired,
        Err(fault) => {
            let stopped = (plan.stopped, fault);
            let children = (plan.scaling, &plan.scaling_children);
            stop::stop(context, actor, children, stopped, &mut ensured).await?;
            return Ok(ensured);
        }
    };
    let Some(own) = desired.standalone() else {
        return Ok(ensured);
    };
    let began = (plan.began, plan.recreates_queue);
    ensured.queue = ensure_queue(context, (actor, desired), plan.queue.clone(), began).await;
    if ends_after_queue(&plan, &ensured.queue) {
        return Ok(ensured);
    }
    let key = &actor.metadata.key;
    if !may_roll(&context.rollouts, key, plan.pacing) {
        ensured.postponed = true;
        plan.workload = WorkloadStep::Keep;
    }
    if let Err(refused) = ensure_prerequisites(context, key, &plan, &mut ensured).await {
        ensured.fault = Some(refused.fault()?);
        return Ok(ensured);
    }
    let settings = scaling::ensure_settings(context, &plan.scaling_children).await?;
    let drift = restored::causes(context, plan.drifts).await?;
    let facts = WorkloadFacts {
        actor,
        own,
        applied: plan.applied_before.as_ref(),
    };
    let workload = (plan.workload, plan.found);
    ensure_workload(context, facts, &plan.ownership, workload, &mut ensured).await?;
    if let Some(step) = plan.scaling {
        let outcome = (settings, ensured.workload.is_some());
        let step = (step, &plan.scaling_children);
        let scaled = scaling::scale(context, step, outcome, &mut ensured).await;
        ensured.interrupted = scaled.err().map(Box::new);
    }
    ensured.contests.restored = restore::restored(drift, &ensured.applied);
    if ensured.interrupted.is_some() {
        return Ok(ensured);
    }
    if let Some(former) = plan.former.filter(|_| replaces_former(own.kind, &ensured)) {
        context.workloads.delete(&former).await?;
    }
    if ensured.fault.is_none() {
        delete_child(&context.service_accounts, &plan.account).await?;
    }
    Ok(ensured)
}

/// Takes a slot if the workload's update needs one. Returns whether it may be updated in this reconcile (SAFE-36).
pub(super) fn may_roll(rollouts: &WorkloadRollouts, key: &Key, pacing: Pacing) -> bool {
    match pacing {
        Pacing::Unlimited => true,
        Pacing::NeedsSlot => rollouts.begin(key),
        Pacing::Report { rolls, settled } => {
            rollouts.saw(key, rolls, settled);
            true
        }
    }
}

/// Ensures what pods cannot start without: the account that applies them, the `ServiceAccount` they run as and the
/// script they mount.
async fn ensure_prerequisites(
    context: &Context,
    Key { namespace, .. }: &Key,
    plan: &Ensure,
    ensured: &mut Ensured,
) -> Result<(), StepError> {
    if plan.workload.writes() {
        context.applier.check(namespace).await?;
    }
    let account = apply_child(&context.service_accounts, &plan.account).await?;
    ensured.applied.extend(account.map(|(_, entry)| entry));
    let script = &context.runtime;
    script.ensure(&context.config_maps, namespace).await
}
