//! Deletes the queue of an actor being deleted, with its dead letter queues, if the broker says that it is the actor's
//! (QUE-34).

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;

use super::messages;
use super::own_queues::OwnQueues;
use crate::broker::{BrokerError, Deleted, Emptied};
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
    let own = OwnQueues::new(context, actor, transport);
    let queue = &removal.queue;
    let unrecorded = plan.wanted_queue.as_ref().filter(|_| !removal.recorded);
    if let Some(wanted) = unrecorded
        && !is_as_we_make_it(own.client.observe(wanted).await)?
    {
        return Ok(Emptied::Gone);
    }
    let removed = if plan.queue_policy.waits_until_empty() {
        own.delete_if_empty(&queue.name).await?
    } else {
        delete_with_messages(&own, queue).await?
    };
    let next = match (after_removal(removed, unrecorded.is_none()), unrecorded) {
        (AfterRemoval::Mark, Some(wanted)) => {
            own.client.update(wanted).await?;
            after_marked_removal(own.delete_if_empty(&wanted.names.queue).await?)
        }
        (next, _) => next,
    };
    match next {
        AfterRemoval::DeadLetters => own.delete_dead_letters(queue).await,
        AfterRemoval::Leave(not_ours) => {
            own.announce_left(&queue.name, &not_ours);
            Ok(Emptied::Gone)
        }
        AfterRemoval::Wait(kept) => Ok(kept),
        AfterRemoval::Mark => Ok(Emptied::Kept),
    }
}

async fn delete_with_messages(
    own: &OwnQueues<'_>,
    queue: &QueueStatus,
) -> Result<Emptied, BrokerError> {
    let lost = messages::count(&*own.client, &queue.name).await;
    match own.client.delete(&queue.name, &own.owner).await? {
        Deleted::Gone => {
            messages::announce_lost(own.context, own.actor, queue, lost).await;
            Ok(Emptied::Gone)
        }
        Deleted::Left(not_ours) => Ok(Emptied::Left(not_ours)),
    }
}
