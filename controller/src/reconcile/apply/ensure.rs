//! Reconciles the queue, the runtime script, the workload and its scaling.

use asya_shared::inject::service_account_name;

use super::child::{apply_child, delete_child, entry_of};
use super::observed_scaling::seen_scaling;
use super::queue::ensure_queue;
use super::workload::ensure_workload;
use super::{restored, scaling, stop};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason};
use crate::reconcile::desired::Standalone;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState};
use crate::reconcile::plan::decision::Ensure;
use crate::reconcile::plan::pace::rolls_and_settled;
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::reconcile::plan::{ChildStep, recorded};
use crate::record::Key;

/// Executes the plan of a live actor.
pub(super) async fn ensure(
    context: &Context,
    observed: &Observed,
    mut plan: Ensure,
) -> Result<Ensured, Error> {
    let mut ensured = Ensured {
        workload: observed.workload.ours().cloned(),
        scaling: seen_scaling(observed, plan.scaling.as_ref().and_then(ScalingStep::fault)),
        ..Ensured::default()
    };
    let (Ok(desired), Some(own)) = (&observed.desired, observed.standalone()) else {
        stop::stop(context, observed, plan.scaling, &plan.stopped, &mut ensured).await?;
        return Ok(ensured);
    };
    ensured.queue = ensure_queue(context, observed, desired, plan.queue).await;
    if plan.done_once {
        return Ok(ensured);
    }
    ensured.postponed = !may_roll(context, observed, (plan.paced, &plan.workload));
    if ensured.postponed {
        plan.workload = WorkloadStep::Keep;
    }
    if plan.workload == WorkloadStep::Create && waits_for_queue(observed, own, &ensured.queue) {
        return Ok(ensured);
    }
    let applies = matches!(
        plan.workload,
        WorkloadStep::Create | WorkloadStep::Update { .. }
    );
    if applies && let Err(fault) = context.applier.check(&observed.key().namespace).await? {
        ensured.fault = Some(fault);
        return Ok(ensured);
    }
    let needed = ensure_needed(context, observed, own, &plan.service_account, &mut ensured);
    if let Err(fault) = needed.await? {
        ensured.fault = Some(fault);
        return Ok(ensured);
    }
    let settings = scaling::ensure_settings(context, observed).await?;
    let changed = restored::look(context, observed, plan.restore, &mut ensured).await?;
    ensure_workload(context, observed, own, plan.workload, &mut ensured).await?;
    if let Some(step) = plan.scaling {
        let step = (step, settings.err());
        let scaled = scaling::scale(context, observed, step, &mut ensured).await;
        if let Err(error) = scaled {
            ensured.interrupted = Some(Box::new(error));
        }
    }
    restored::book(changed, &mut ensured);
    if ensured.interrupted.is_some() {
        return Ok(ensured);
    }
    if let Some(former) = plan.former.filter(|_| is_in_place(own, &ensured)) {
        context.workloads.delete(&former).await?;
    }
    if ensured.fault.is_none() {
        let (accounts, name) = (&context.service_accounts, service_account(observed));
        delete_child(accounts, &name, &plan.service_account).await?;
    }
    Ok(ensured)
}

/// Returns whether the workload may be updated in this reconcile. Only a few workloads at a time replace their pods
/// because of a change of the installation (SAFE-36).
pub(super) fn may_roll(
    context: &Context,
    observed: &Observed,
    (paced, step): (bool, &WorkloadStep),
) -> bool {
    let (key, rollouts) = (observed.key(), &context.rollouts);
    if paced {
        return rollouts.begin(key);
    }
    if let (WorkloadStep::Keep, Some(workload)) = (step, observed.workload.ours()) {
        let (rolls, settled) = rolls_and_settled(workload);
        rollouts.saw(key, rolls, settled);
    }
    true
}

/// Only the first creation waits for the queue, and not for a queue whose name SQS frees within a minute (QUE-4).
fn waits_for_queue(observed: &Observed, own: &Standalone, queue: &QueueState) -> bool {
    let (kind, name) = (own.kind.name(), &observed.key().name);
    let made_before = recorded(&observed.previous.inventory, kind, name).is_some();
    let comes_soon =
        matches!(queue, QueueState::Fault(fault) if fault.reason == Reason::QueueDeletedRecently);
    !queue.is_usable() && !made_before && !comes_soon
}

/// Returns whether the workload can replace one of the other kind: a wanted autoscaler must already drive it (WRK-6).
fn is_in_place(own: &Standalone, ensured: &Ensured) -> bool {
    let scaled = ensured.scaling.as_ref().is_none_or(|scaled| {
        let target = scaled
            .scaled_object
            .as_ref()
            .map(|found| &*found.target.kind);
        scaled.fault.is_none() && target == Some(own.kind.name())
    });
    ensured.workload.is_some() && scaled
}

/// Ensures what pods cannot start without: the `ServiceAccount` they run as and the script they mount.
async fn ensure_needed(
    context: &Context,
    observed: &Observed,
    own: &Standalone,
    account: &ChildStep,
    ensured: &mut Ensured,
) -> Result<Result<(), Fault>, Error> {
    if let Some(wanted) = &own.service_account {
        let name = service_account(observed);
        let accounts = (&context.service_accounts, &observed.service_account);
        let applied = apply_child(observed, accounts, &name, (account, wanted));
        match applied.await? {
            Ok(Some(record)) => ensured.applied.push(entry_of(&*record, wanted)),
            Ok(None) => {}
            Err(fault) => return Ok(Err(fault)),
        }
    }
    let namespace = &observed.key().namespace;
    context
        .runtime
        .ensure(&context.config_maps, namespace)
        .await
}

fn service_account(observed: &Observed) -> Key {
    let Key { namespace, name } = observed.key();
    Key::new(namespace, &service_account_name(name))
}
