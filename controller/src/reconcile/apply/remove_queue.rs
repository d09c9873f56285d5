//! Deletes the queue of an actor being deleted, with its dead letter queues, if the broker says that it is the actor's
//! (QUE-34).

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;
use asya_shared::transport::QueueOf;
use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;

use super::messages;
use super::retired::{delete_dead_letters, owner, tell_left};
use crate::broker::{
    BrokerError, Deleted, Emptied, QueueCheck, QueueClient, QueueObservation as QueueSeen,
};
use crate::context::Context;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::deletion::QueueRemoval;

/// Returns `Kept` for a queue that must be empty and is not, or `Later` if that is not certain yet.
pub(super) async fn remove_queue(
    context: &Context,
    observed: &Observed,
    transport: &Transport,
    removal: &QueueRemoval,
) -> Result<Emptied, BrokerError> {
    let QueueRemoval { queue, recorded } = removal;
    let client = context.brokers.client(transport, &observed.key().namespace);
    let owner = owner(observed);
    let unrecorded = match &observed.desired {
        Ok(desired) if !recorded => Some(desired.queue_of(&observed.actor)),
        _ => None,
    };
    if let Some(wanted) = &unrecorded
        && !is_as_we_make_it(&*client, wanted).await?
    {
        return Ok(Emptied::Gone);
    }
    let removed = remove(context, observed, &*client, queue, &owner).await?;
    let removed = match (removed, &unrecorded) {
        (Emptied::Left(NotOurs::Unmarked), Some(wanted)) => {
            remove_unfinished(&*client, wanted, &owner).await?
        }
        (removed, _) => removed,
    };
    match removed {
        Emptied::Gone => delete_dead_letters(context, observed, transport, queue).await,
        Emptied::Left(not_ours) => {
            tell_left(context, observed, queue, &not_ours);
            Ok(Emptied::Gone)
        }
        kept @ (Emptied::Kept | Emptied::Later(_)) => Ok(kept),
    }
}

async fn remove(
    context: &Context,
    observed: &Observed,
    client: &dyn QueueClient,
    queue: &QueueStatus,
    owner: &Owner,
) -> Result<Emptied, BrokerError> {
    if observed.deletion.queue.waits_until_empty() {
        return client.delete_if_empty(&queue.name, owner).await;
    }
    let lost = messages::count(client, &queue.name).await;
    match client.delete(&queue.name, owner).await? {
        Deleted::Gone => {
            messages::tell_lost(context, observed, queue, lost).await;
            Ok(Emptied::Gone)
        }
        Deleted::Left(not_ours) => Ok(Emptied::Left(not_ours)),
    }
}

/// A queue that the status does not record is ours only if it matches what we would have created.
async fn is_as_we_make_it(client: &dyn QueueClient, wanted: &QueueOf) -> Result<bool, BrokerError> {
    match client.observe(wanted).await {
        Ok(QueueSeen { standing, .. }) => Ok(matches!(
            standing,
            QueueCheck::Serves(_) | QueueCheck::Drifted | QueueCheck::Unmarked
        )),
        Err(BrokerError::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A reconcile that created the queue may have been interrupted before it marked it. Any other unmarked queue is
/// foreign, so it is deleted only if it is empty.
async fn remove_unfinished(
    client: &dyn QueueClient,
    wanted: &QueueOf,
    owner: &Owner,
) -> Result<Emptied, BrokerError> {
    client.update(wanted).await?;
    match client.delete_if_empty(&wanted.names.queue, owner).await? {
        Emptied::Kept => Ok(Emptied::Left(NotOurs::Unmarked)),
        other => Ok(other),
    }
}
