//! Tears down what we created: the scaling objects, the workload, its `ServiceAccount` and queue, the shared objects,
//! and finally our finalizer.

use std::time::Duration;

use tracing::warn;

use super::confirm::confirm;
use super::finalizer::patch_finalizers;
use super::remove_queue::remove_queue;
use super::unbind::unbind;
use super::{messages, parent, scaling, shared, wake};
use crate::broker::Emptied;
use crate::context::Context;
use crate::fault::{Error, Fault, Requeue, StepError};
use crate::reconcile::desired::deletion;
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::deletion::{
    AccountRemoval, Deletion, QueueRemoval, ScalingRemoval, Then, WorkloadRemoval,
};
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// Executes the plan of an actor being deleted.
pub(super) async fn delete(
    context: &Context,
    actor: &ActorRecord,
    plan: Box<Deletion>,
) -> Result<Outcome, Error> {
    let namespace = &actor.metadata.key.namespace;
    let uid = &*actor.metadata.uid;
    let steps = &plan.steps;
    match &steps.scaling {
        ScalingRemoval::Delete(_) => scaling::remove(context, &plan.scaling_children).await?,
        ScalingRemoval::Orphan => orphan_scaling(context, uid, &plan).await?,
    }
    let mut deleted = deleted_kinds(&steps.scaling);
    if let Some(wake) = &steps.wake
        && let Err(refused) = wake::wake(context, namespace, wake).await
    {
        // A target that we may not scale up must not block the deletion.
        let fault = refused.fault()?;
        warn!(object = %wake.object, fault.message, "left without pods");
    }
    if let Some(outcome) = unbind(context, actor, (&steps.unbind, &plan.unbind_inputs)).await? {
        return Ok(outcome.with(deleted));
    }
    for workload in &plan.unbind_inputs.marked {
        parent::unmark(context, namespace, workload).await?;
    }
    for removal in &steps.workloads {
        match removal {
            WorkloadRemoval::Delete(workload) => {
                context.workloads.delete(workload).await?;
                deleted.push(workload.kind.name());
            }
            WorkloadRemoval::Orphan(workload) => context.workloads.orphan(workload, uid).await?,
        }
    }
    if let Some(account) = &plan.service_account {
        let (accounts, metadata) = (&context.service_accounts, &account.metadata);
        match steps.service_account {
            AccountRemoval::Keep => {}
            AccountRemoval::Delete => accounts.delete(&metadata.key, &metadata.uid).await?,
            AccountRemoval::Orphan => {
                accounts.orphan(&metadata.key, &metadata.uid, uid).await?;
            }
        }
    }
    let queues = match &steps.then {
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
    confirm(context, actor).await?;
    if let Some(outcome) = delete_queues(context, actor, &plan, queues).await? {
        return Ok(outcome);
    }
    shared::release(context, actor, &plan).await?;
    if plan.orphans {
        let text = "the queue and every object of this actor stay, as deletionPolicy: Orphan asks";
        context.events.tell(actor, EventReason::Orphaned, text);
    }
    if let Some((namespace, held)) = &plan.abandons {
        let kept = (namespace.as_deref(), held);
        messages::announce_kept(context, (actor, plan.queue_policy), kept);
    }
    if let Some(patch) = plan.release {
        patch_finalizers(context, patch).await?;
    }
    Ok(Outcome::Gone)
}

/// Removes our owner reference from the scaling objects, which outlive the actor (FW-23).
async fn orphan_scaling(context: &Context, actor: &str, plan: &Deletion) -> Result<(), Error> {
    if let Some(found) = &plan.scaled_object {
        let (key, uid) = (&found.metadata.key, &found.metadata.uid);
        context.scaled_objects.orphan(key, uid, actor).await?;
    }
    if let Some(found) = &plan.trigger_authentication {
        let (key, uid) = (&found.metadata.key, &found.metadata.uid);
        let authentications = &context.trigger_authentications;
        authentications.orphan(key, uid, actor).await?;
    }
    Ok(())
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
    actor: &ActorRecord,
    plan: &Deletion,
    queues: &[QueueRemoval],
) -> Result<Option<Outcome>, Error> {
    let (mut held, mut wait) = (None::<Fault>, None::<Duration>);
    for removal in queues {
        match delete_queue(context, actor, (plan, removal)).await {
            Ok(Emptied::Gone | Emptied::Left(_)) => {}
            // Messages arrived in the meantime: the next reconcile counts them.
            Ok(Emptied::Kept) => held = held.or(Some(messages::still_used(&removal.queue.name))),
            // The broker's counts lag: keep the queue until it is known to be empty.
            Ok(Emptied::Later(more)) => wait = wait.max(Some(more)),
            Err(refused) => {
                let fault = refused.fault()?;
                let event = EventReason::QueueDeletionFailed;
                context.events.tell(actor, event, &fault.message);
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

async fn delete_queue(
    context: &Context,
    actor: &ActorRecord,
    (plan, removal): (&Deletion, &QueueRemoval),
) -> Result<Emptied, StepError> {
    let queue = &removal.queue;
    let what = format!("queue {} cannot be deleted", queue.name);
    let transports = &context.installation.transports;
    let transport = transports
        .usable(&queue.transport)
        .map_err(|unusable| deletion::unreachable(&what, &unusable))?;
    remove_queue(context, actor, (plan, removal), transport)
        .await
        .map_err(|error| deletion::unanswered(&what, &error))
}
