//! Deletes the queues of an actor being deleted, with their dead letter queues, if the owner tag at the broker names
//! the actor (QUE-34).
//!
//! Chooses calls here, because only the broker's response to one determines the next; `plan::queue_removal` decides
//! what follows each response. Two things are read immediately before they matter: pods that were left without the
//! actor, whose containers no cache has, and the namespace, which may have begun to terminate since it was observed.

use std::time::Duration;

use asya_shared::api::QueueStatus;
use tracing::debug;

use super::actor_queues::ActorQueues;
use super::left_pods::find_consumer;
use super::messages;
use crate::broker::deletion_fault;
use crate::broker::{BrokerError, DeleteIfEmptyOutcome, DeleteOutcome, DeletionGuard, Untagged};
use crate::context::Context;
use crate::fault::{Error, Fault, Requeue, StepError};
use crate::reconcile::model::known_queues::QueueEvidence;
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::plan::deletion::{Deletion, QueueMessages, QueueRemoval};
use crate::reconcile::plan::queue_removal::{
    AfterRemoval, RemovalProgress, after_removal, after_unrecorded_removal, after_untagged_removal,
    is_removable, is_untagged,
};
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// Deletes all queues, continuing after one that cannot be deleted. Returns what blocks the deletion, if anything.
pub(super) async fn delete_queues(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
    queues: &[QueueRemoval],
    guard: &dyn DeletionGuard,
) -> Result<Option<Outcome>, Error> {
    let mut blocker = None::<Fault>;
    let mut wait = None::<Duration>;
    for removal in queues {
        match delete_queue(context, actor, plan, removal, guard).await {
            Ok(RemovalProgress::Done) => {}
            // Messages have arrived in the meantime, which the next reconcile counts, or the queue has another
            // consumer.
            Ok(RemovalProgress::InUse) => {
                let policy = plan.queue_policy;
                let queue = &removal.queue;
                if !messages::keep_in_terminating_namespace(context, actor, policy, queue).await? {
                    blocker = blocker.or(Some(messages::not_empty_fault(&queue.name)));
                }
            }
            // The broker's counts lag: keep the queue until it is known to be empty.
            Ok(RemovalProgress::Recheck(delay)) => wait = wait.max(Some(delay)),
            Err(failed) => {
                let fault = failed.fault()?;
                let event = EventReason::QueueDeletionFailed;
                context.events.publish(actor, event, &fault.message);
                blocker = blocker.or(Some(fault));
            }
        }
    }
    let requeue = blocker.as_ref().map(|fault| fault.requeue);
    let requeue = requeue.or(wait.map(Requeue::After));
    Ok(requeue.map(|requeue| Outcome::Deleting {
        fault: blocker,
        deleted: Vec::new(),
        requeue,
        changed_target: false,
    }))
}

async fn delete_queue(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
    removal: &QueueRemoval,
    guard: &dyn DeletionGuard,
) -> Result<RemovalProgress, StepError> {
    let queue = &removal.queue;
    let problem = format!("queue {} cannot be deleted", queue.name);
    let transports = &context.installation.transports;
    let transport = transports
        .usable(&queue.transport)
        .map_err(|unusable| deletion_fault::unusable_transport_fault(&problem, &unusable))?;
    if let Some(pod) = find_consumer(context, actor, &plan.left_pods(), transport).await? {
        let text = plan.kept_queue_text(actor, queue, &pod);
        context.events.publish(actor, EventReason::QueueLeft, &text);
        return Ok(RemovalProgress::Done);
    }
    let queues = ActorQueues::new(context, actor, transport, guard);
    if removal.evidence == QueueEvidence::MaybeCreated {
        return Ok(remove_unrecorded_queue(&queues, queue).await);
    }
    remove_queue(&queues, plan, removal)
        .await
        .map_err(|error| deletion_fault::broker_step_error(&problem, &error))
}

/// Returns `InUse` for a queue that must be empty and is not, or `Recheck` while that is uncertain.
async fn remove_queue(
    queues: &ActorQueues<'_>,
    plan: &Deletion,
    removal: &QueueRemoval,
) -> Result<RemovalProgress, BrokerError> {
    let queue = &removal.queue;
    let is_desired = removal.evidence == QueueEvidence::Desired;
    let unconfirmed = plan.desired_queue.as_ref().filter(|_| is_desired);
    if let Some(desired) = unconfirmed
        && !is_removable(queues.client.observe(desired).await)?
    {
        return Ok(RemovalProgress::Done);
    }
    let removed = match plan.queue_messages {
        QueueMessages::Keep => queues.delete_if_empty(&queue.name, Untagged::Keep).await?,
        QueueMessages::Delete => delete_with_messages(queues, queue).await?,
    };
    let unrecorded = &queues.context.unrecorded_queues;
    let key = &queues.actor.metadata.key;
    let created = unrecorded.created_as(key, queue);
    let may_lack_tag = unconfirmed.or(created.as_ref());
    let next = match may_lack_tag.filter(|_| is_untagged(&removed)) {
        Some(created) if is_removable(queues.client.observe(created).await)? => {
            let removed = queues
                .delete_if_empty(&queue.name, Untagged::Delete)
                .await?;
            after_untagged_removal(removed)
        }
        _ => after_removal(removed),
    };
    match next {
        AfterRemoval::DeadLetters => {
            let recheck = queues.delete_dead_letters(queue).await?;
            Ok(recheck.map_or(RemovalProgress::Done, RemovalProgress::Recheck))
        }
        AfterRemoval::Leave(refusal) => {
            queues.report_kept(&queue.name, &refusal);
            Ok(RemovalProgress::Done)
        }
        AfterRemoval::Wait(progress) => Ok(progress),
    }
}

/// Deletes what an earlier process may have created, if it is empty. Anything else stays: nothing shows that it ever
/// was the actor's.
async fn remove_unrecorded_queue(queues: &ActorQueues<'_>, queue: &QueueStatus) -> RemovalProgress {
    let unrecorded = &queues.context.unrecorded_queues;
    let key = &queues.actor.metadata.key;
    let created = unrecorded.created_as(key, queue);
    let removed = queues.delete_retired(queue, created.as_ref()).await;
    if let Err(error) = &removed {
        debug!(queue = queue.name, transport = queue.transport, %error, "cannot look up a queue that may exist");
    }
    let failures = match &removed {
        Err(error) => unrecorded.record_failure(key, queue, error),
        Ok(_) => 0,
    };
    let outcome = removed.map(|removal| removal.outcome);
    let progress = after_unrecorded_removal(outcome, failures);
    if progress == RemovalProgress::Done {
        unrecorded.remove(key, queue);
    }
    progress
}

async fn delete_with_messages(
    queues: &ActorQueues<'_>,
    queue: &QueueStatus,
) -> Result<DeleteIfEmptyOutcome, BrokerError> {
    let depth = messages::count(&*queues.client, &queue.name).await;
    match queues
        .client
        .delete(&queue.name, &queues.owner, queues.guard)
        .await?
    {
        DeleteOutcome::Deleted => {
            messages::report_deleted_messages(queues.context, queues.actor, queue, depth).await;
            Ok(DeleteIfEmptyOutcome::Deleted)
        }
        DeleteOutcome::NotOwned(refusal) => Ok(DeleteIfEmptyOutcome::NotOwned(refusal)),
    }
}
