//! Deletes retired queues that are empty (QUE-13).

use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;
use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;
use kube::Api;
use tracing::{debug, info};

use crate::broker::health::Finding;
use crate::broker::{BrokerError, Emptied};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Looked;
use crate::record::{ActorRecord, Seen};
use crate::telemetry::events::EventReason;

/// Asks the brokers, unless that was done a short time ago. What one does not answer is told nowhere: it
/// says nothing about the actor's work.
pub(super) async fn look(
    context: &Context,
    observed: &Observed,
    queues: Vec<QueueStatus>,
) -> Result<Looked, Error> {
    let key = observed.key();
    let mut looked = Looked::default();
    if queues.is_empty() {
        return Ok(looked);
    }
    let wait = context.retired_queue_schedule.wait(key);
    if !wait.is_zero() {
        looked.again = Some(wait);
        return Ok(looked);
    }
    confirm_spec(context, observed).await?;
    let (asked, mut sooner) = (queues.len(), None);
    for queue in queues {
        let Ok(transport) = context.installation.transports.usable(&queue.transport) else {
            continue;
        };
        let (name, transport_name) = (&*queue.name, &*queue.transport);
        match delete_if_empty(context, observed, transport, &queue).await {
            Ok(Emptied::Gone) => {
                info!(
                    queue = name,
                    transport = transport_name,
                    "retired queue is empty and was deleted"
                );
                looked.gone.push(queue);
            }
            // It is not this actor's any more, and never will be.
            Ok(Emptied::Left(not_ours)) => {
                tell_left(context, observed, &queue, &not_ours);
                looked.gone.push(queue);
            }
            Ok(Emptied::Kept) => {}
            Ok(Emptied::Later(wait)) => sooner = Some(earlier(sooner, wait)),
            Err(error) => match error.comes_again() {
                Some(wait) => sooner = Some(earlier(sooner, wait)),
                None => {
                    debug!(queue = name, transport = transport_name, %error, "retired queue not seen");
                }
            },
        }
    }
    if !looked.gone.is_empty() {
        // Two addresses may lead to one broker: then it was the queue that is wanted, and comes back.
        context.queue_rechecks.raise(key, Finding::Changed);
        looked.again = Some(Duration::ZERO);
    }
    if looked.gone.len() == asked {
        context.retired_queue_schedule.forget(key);
    } else if looked.gone.is_empty() {
        looked.again = Some(context.retired_queue_schedule.looked(key, sooner));
    }
    Ok(looked)
}

fn earlier(one: Option<Duration>, other: Duration) -> Duration {
    one.map_or(other, |one| one.min(other))
}

/// With its dead letter queues.
async fn delete_if_empty(
    context: &Context,
    observed: &Observed,
    transport: &Transport,
    queue: &QueueStatus,
) -> Result<Emptied, BrokerError> {
    let client = context.brokers.client(transport, &observed.key().namespace);
    let owner = owner(observed);
    match client.delete_if_empty(&queue.name, &owner).await? {
        Emptied::Gone => {}
        other => return Ok(other),
    }
    delete_dead_letters(context, observed, transport, queue).await
}

/// Deletes a queue's own dead letter queues, those of earlier configurations included, unless they hold
/// messages: these stay, and an Event says so (QUE-14). Answers `Later` while that is not known of one.
pub(super) async fn delete_dead_letters(
    context: &Context,
    observed: &Observed,
    transport: &Transport,
    queue: &QueueStatus,
) -> Result<Emptied, BrokerError> {
    let client = context.brokers.client(transport, &observed.key().namespace);
    let (owner, mut later) = (owner(observed), None);
    for dlq in own_dead_letters(context, observed, transport, queue) {
        match client.delete_if_empty(&dlq, &owner).await? {
            Emptied::Gone => {}
            Emptied::Later(wait) => later = later.max(Some(wait)),
            Emptied::Left(not_ours) => {
                let dlq = QueueStatus {
                    name: dlq,
                    transport: transport.name.clone(),
                    ..QueueStatus::default()
                };
                tell_left(context, observed, &dlq, &not_ours);
            }
            Emptied::Kept => {
                let text = format!(
                    "dead letter queue {dlq} on transport {} holds messages or has receivers: it stays; delete it at \
                     the broker when they are dealt with",
                    transport.name
                );
                let note = EventReason::DeadLettersKept;
                context.events.tell(&observed.actor, note, &text);
            }
        }
    }
    Ok(later.map_or(Emptied::Gone, Emptied::Later))
}

/// Says why a queue outlives its actor (QUE-34).
pub(super) fn tell_left(
    context: &Context,
    observed: &Observed,
    queue: &QueueStatus,
    not_ours: &NotOurs,
) {
    let QueueStatus {
        name, transport, ..
    } = queue;
    let text = format!("queue {name} on transport {transport} stays: {not_ours}");
    context
        .events
        .tell(&observed.actor, EventReason::QueueLeft, &text);
}

/// One that others share is nobody's to delete, nor is the queue of an actor that is named like it.
fn own_dead_letters(
    context: &Context,
    observed: &Observed,
    transport: &Transport,
    queue: &QueueStatus,
) -> Vec<String> {
    let mut all = transport.all_own_dead_letters(&queue.name, &queue.dead_letters);
    let transports = &context.installation.transports;
    all.retain(|dlq| {
        let place = (&*transport.name, &**dlq);
        let owner = context.claims.owner_of(transports, place, observed.key());
        owner.is_none()
    });
    all
}

/// Whose queues they are, as their broker knows it.
pub(super) fn owner(observed: &Observed) -> Owner {
    let key = observed.key();
    Owner {
        namespace: key.namespace.to_string(),
        actor: key.name.to_string(),
        uid: observed.actor.metadata.uid.to_string(),
    }
}

/// That the queue is still not wanted is read from the API server itself, not from a store which may be
/// behind.
async fn confirm_spec(context: &Context, observed: &Observed) -> Result<(), Error> {
    let key = observed.key();
    let api: Api<Seen<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let live = api.get_opt(&key.name).await.map_err(Error::Api)?;
    let (seen, known) = (live.map(|seen| seen.record), &observed.actor);
    let confirmed = seen.is_some_and(|live| {
        live.metadata.uid == known.metadata.uid
            && live.generation == known.generation
            && live.annotations == known.annotations
    });
    if confirmed {
        Ok(())
    } else {
        Err(Error::Stale("the actor"))
    }
}
