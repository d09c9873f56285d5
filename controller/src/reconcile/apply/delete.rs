//! Tears down what we created: the scaling objects, the workload, its `ServiceAccount` and queue, the shared objects,
//! and finally our finalizer.

use std::time::Duration;

use kube::Api;
use tracing::warn;

use super::finalizer::remove_finalizer;
use super::remove_queue::remove_queue;
use super::unbind::unbind;
use super::{messages, parent, scaling, shared, wake};
use crate::broker::Emptied;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::desired::drain::Drain;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::deletion::{
    AccountRemoval, Delete, QueueRemoval, ScalingRemoval, Then, WorkloadRemoval,
};
use crate::record::{ActorRecord, Projected};
use crate::telemetry::events::EventReason;

/// Executes the plan of an actor being deleted.
pub(super) async fn delete(
    context: &Context,
    observed: &Observed,
    plan: Delete,
) -> Result<Outcome, Error> {
    let uid = &*observed.actor.metadata.uid;
    match &plan.scaling {
        ScalingRemoval::Delete(removal) => scaling::remove(context, observed, removal).await?,
        ScalingRemoval::Orphan => scaling::orphan(context, observed).await?,
    }
    let mut deleted = deleted_kinds(&plan.scaling);
    if let Some(wake) = &plan.wake
        && let Err(fault) = wake::wake(context, observed, wake).await?
    {
        // A target that we may not scale up must not block the deletion.
        warn!(object = %wake.object, fault.message, "left without pods");
    }
    if let Some(outcome) = unbind(context, observed, plan.unbind).await? {
        return Ok(outcome.with(deleted));
    }
    parent::unmark(context, observed).await?;
    for removal in &plan.workloads {
        match removal {
            WorkloadRemoval::Delete(workload) => {
                context.workloads.delete(workload).await?;
                deleted.push(workload.kind.name());
            }
            WorkloadRemoval::Orphan(workload) => context.workloads.orphan(workload, uid).await?,
        }
    }
    if let Some(account) = observed.service_account.ours() {
        let (accounts, metadata) = (&context.service_accounts, &account.metadata);
        match plan.service_account {
            AccountRemoval::Keep => {}
            AccountRemoval::Delete => accounts.delete(&metadata.key, &metadata.uid).await?,
            AccountRemoval::Orphan => {
                accounts.orphan(&metadata.key, &metadata.uid, uid).await?;
            }
        }
    }
    let queues = match plan.then {
        Then::Gone => return Ok(Outcome::Gone),
        Then::Wait(wait) => {
            let retry = wait.map_or(Requeue::AwaitChange, Requeue::After);
            return Ok(Outcome::Deleting {
                fault: None,
                deleted,
                retry,
                released: false,
            });
        }
        Then::Finish { queues } => queues,
    };
    confirm_deletion(context, observed).await?;
    if let Some(outcome) = delete_queues(context, observed, queues).await? {
        return Ok(outcome);
    }
    shared::release(context, observed).await?;
    if observed.deletion.orphans {
        let text = "the queue and every object of this actor stay, as deletionPolicy: Orphan asks";
        context
            .events
            .tell(&observed.actor, EventReason::Orphaned, text);
    }
    if let Some(Drain::Abandoned {
        namespace_uid,
        held,
    }) = &observed.drain
    {
        messages::tell_kept(context, observed, namespace_uid.as_deref(), held);
    }
    remove_finalizer(context, &observed.actor).await?;
    Ok(Outcome::Gone)
}

fn deleted_kinds(scaling: &ScalingRemoval) -> Vec<&'static str> {
    let ScalingRemoval::Delete(removal) = scaling else {
        return Vec::new();
    };
    let steps = [
        ("ScaledObject", &removal.scaled_object),
        ("TriggerAuthentication", &removal.trigger_authentication),
    ];
    let deleted = steps
        .into_iter()
        .filter(|(_, step)| matches!(step, ChildStep::Delete(_)));
    deleted.map(|(kind, _)| kind).collect()
}

/// Deletes all queues; one that cannot be deleted does not stop the others. Returns what blocks the deletion, if
/// anything.
async fn delete_queues(
    context: &Context,
    observed: &Observed,
    queues: Vec<QueueRemoval>,
) -> Result<Option<Outcome>, Error> {
    let (mut held, mut wait) = (None::<Fault>, None::<Duration>);
    for removal in queues {
        match delete_queue(context, observed, &removal).await? {
            Ok(Emptied::Gone | Emptied::Left(_)) => {}
            // Messages arrived in the meantime: the next reconcile counts them.
            Ok(Emptied::Kept) => held = held.or(Some(messages::still_used(&removal.queue.name))),
            // The broker's counts lag: keep the queue until it is known to be empty.
            Ok(Emptied::Later(more)) => wait = wait.max(Some(more)),
            Err(fault) => {
                let (note, text) = (EventReason::QueueDeletionFailed, &fault.message);
                context.events.tell(&observed.actor, note, text);
                held = held.or(Some(fault));
            }
        }
    }
    let retry = held.as_ref().map(|fault| fault.retry);
    let retry = retry.or(wait.map(Requeue::After));
    Ok(retry.map(|retry| Outcome::Deleting {
        fault: held,
        deleted: Vec::new(),
        retry,
        released: false,
    }))
}

/// A deleted queue cannot be restored, so the plan must rest on the actor as the API server has it now: while a watch
/// is down the store may lack `deletionPolicy: Retain`, or the annotation that keeps the queue.
async fn confirm_deletion(context: &Context, observed: &Observed) -> Result<(), Error> {
    let live = actors(context, observed)
        .get_opt(&observed.key().name)
        .await
        .map_err(Error::Api)?;
    let known = &observed.actor;
    let confirmed = live.as_ref().is_some_and(|live| {
        let live = &live.record;
        live.metadata.deleting
            && live.metadata.uid == known.metadata.uid
            && live.generation == known.generation
            && live.annotations == known.annotations
    });
    if confirmed {
        return Ok(());
    }
    // The next reconcile plans with what was just read, even if the watch is still behind.
    if let Some(live) = &live {
        context.stores.actors.wrote(live);
    }
    Err(Error::Stale("the actor"))
}

async fn delete_queue(
    context: &Context,
    observed: &Observed,
    removal: &QueueRemoval,
) -> Result<Result<Emptied, Fault>, Error> {
    let queue = &removal.queue;
    let failed = |message: String, retry| Fault {
        reason: Reason::QueueDeletionFailed,
        message: format!("queue {} cannot be deleted: {message}", queue.name),
        retry,
    };
    let transport = match context.installation.transports.usable(&queue.transport) {
        Ok(transport) => transport,
        Err(unusable) => {
            let hint = "configure it again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the queue behind";
            return Ok(Err(failed(
                format!("{unusable}; {hint}"),
                Requeue::SlowBackoff,
            )));
        }
    };
    match remove_queue(context, observed, transport, removal).await {
        Ok(emptied) => Ok(Ok(emptied)),
        Err(error) => {
            if let Some(wait) = error.comes_again() {
                return Err(Error::Busy(error.to_string(), wait));
            }
            let retry = match error.retry() {
                asked @ Requeue::After(_) => asked,
                _ => Requeue::Backoff,
            };
            Ok(Err(failed(error.to_string(), retry)))
        }
    }
}

fn actors(context: &Context, observed: &Observed) -> Api<Projected<ActorRecord>> {
    Api::namespaced(context.client.clone(), &observed.key().namespace)
}
