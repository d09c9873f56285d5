//! Deletes the queue of an actor being deleted, with its dead letter queues, if the broker says that it is the actor's
//! (QUE-34).

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;
use asya_shared::transport::sqs::Owner;

use super::messages;
use super::retired::{delete_dead_letters, owner, tell_left};
use crate::broker::{BrokerError, Deleted, Emptied, QueueClient};
use crate::context::Context;
use crate::reconcile::plan::deletion::{Deletion, QueueRemoval};
use crate::reconcile::plan::queue_removal::{
    AfterRemoval, after_marked_removal, after_removal, is_as_we_make_it,
};
use crate::record::ActorRecord;

/// Returns `Kept` for a queue that must be empty and is not, or `Later` if that is not certain yet.
pub(super) async fn remove_queue(
    context: &Context,
    actor: &ActorRecord,
    (plan, removal): (&Deletion, &QueueRemoval),
    transport: &Transport,
) -> Result<Emptied, BrokerError> {
    let queue = &removal.queue;
    let namespace = &actor.metadata.key.namespace;
    let client = context.brokers.client(transport, namespace);
    let owner = owner(actor);
    let unrecorded = plan.wanted_queue.as_ref().filter(|_| !removal.recorded);
    if let Some(wanted) = unrecorded
        && !is_as_we_make_it(client.observe(wanted).await)?
    {
        return Ok(Emptied::Gone);
    }
    let removed = if plan.queue_policy.waits_until_empty() {
        client.delete_if_empty(&queue.name, &owner).await?
    } else {
        delete_with_messages(context, actor, &*client, (queue, &owner)).await?
    };
    let next = match (after_removal(removed, unrecorded.is_none()), unrecorded) {
        (AfterRemoval::Mark, Some(wanted)) => {
            client.update(wanted).await?;
            let queue = &wanted.names.queue;
            after_marked_removal(client.delete_if_empty(queue, &owner).await?)
        }
        (next, _) => next,
    };
    match next {
        AfterRemoval::DeadLetters => delete_dead_letters(context, actor, transport, queue).await,
        AfterRemoval::Leave(not_ours) => {
            tell_left(context, actor, queue, &not_ours);
            Ok(Emptied::Gone)
        }
        AfterRemoval::Wait(kept) => Ok(kept),
        AfterRemoval::Mark => Ok(Emptied::Kept),
    }
}

async fn delete_with_messages(
    context: &Context,
    actor: &ActorRecord,
    client: &dyn QueueClient,
    (queue, owner): (&QueueStatus, &Owner),
) -> Result<Emptied, BrokerError> {
    let lost = messages::count(client, &queue.name).await;
    match client.delete(&queue.name, owner).await? {
        Deleted::Gone => {
            messages::tell_lost(context, actor, queue, lost).await;
            Ok(Emptied::Gone)
        }
        Deleted::Left(not_ours) => Ok(Emptied::Left(not_ours)),
    }
}
