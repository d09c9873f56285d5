//! Deletes retired queues once they are empty (QUE-13).

use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::config::Transport;
use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;
use tracing::{debug, info};

use super::confirm::confirm;

use crate::broker::health::Finding;
use crate::broker::{BrokerError, Emptied};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::{NextCheck, after_check};
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// Checks the retired queues at their brokers, unless that was done recently. Broker errors are not reported in the
/// status, because they say nothing about the actor's work.
pub(super) async fn check(
    context: &Context,
    actor: &ActorRecord,
    queues: Vec<QueueStatus>,
) -> Result<RetiredQueues, Error> {
    let key = &actor.metadata.key;
    let mut looked = RetiredQueues::default();
    if queues.is_empty() {
        return Ok(looked);
    }
    let wait = context.retired_queue_schedule.wait(key);
    if !wait.is_zero() {
        looked.again = Some(wait);
        return Ok(looked);
    }
    confirm(context, actor).await?;
    let (asked, mut sooner) = (queues.len(), None);
    for queue in queues {
        let Ok(transport) = context.installation.transports.usable(&queue.transport) else {
            continue;
        };
        let (name, transport_name) = (&*queue.name, &*queue.transport);
        match delete_if_empty(context, actor, transport, &queue).await {
            Ok(Emptied::Gone) => {
                info!(
                    queue = name,
                    transport = transport_name,
                    "retired queue is empty and was deleted"
                );
                looked.gone.push(queue);
            }
            // The queue no longer belongs to this actor, and never will again.
            Ok(Emptied::Left(not_ours)) => {
                tell_left(context, actor, &queue, &not_ours);
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
    let next = after_check(asked, looked.gone.len());
    if next.rechecks_queue {
        context.queue_rechecks.raise(key, Finding::Changed);
        looked.again = Some(Duration::ZERO);
    }
    match next.schedule {
        NextCheck::None => context.retired_queue_schedule.forget(key),
        NextCheck::Now => {}
        NextCheck::Scheduled => {
            looked.again = Some(context.retired_queue_schedule.looked(key, sooner));
        }
    }
    Ok(looked)
}

fn earlier(one: Option<Duration>, other: Duration) -> Duration {
    one.map_or(other, |one| one.min(other))
}

/// Deletes an empty queue together with its dead letter queues.
async fn delete_if_empty(
    context: &Context,
    actor: &ActorRecord,
    transport: &Transport,
    queue: &QueueStatus,
) -> Result<Emptied, BrokerError> {
    let client = context
        .brokers
        .client(transport, &actor.metadata.key.namespace);
    let owner = owner(actor);
    match client.delete_if_empty(&queue.name, &owner).await? {
        Emptied::Gone => {}
        other => return Ok(other),
    }
    delete_dead_letters(context, actor, transport, queue).await
}

/// Deletes a queue's own dead letter queues, including those of earlier configurations. One that holds messages or has
/// receivers is kept and reported by an Event (QUE-14). Returns `Later` while it is not known whether one is empty.
pub(super) async fn delete_dead_letters(
    context: &Context,
    actor: &ActorRecord,
    transport: &Transport,
    queue: &QueueStatus,
) -> Result<Emptied, BrokerError> {
    let client = context
        .brokers
        .client(transport, &actor.metadata.key.namespace);
    let (owner, mut later) = (owner(actor), None);
    for dlq in own_dead_letters(context, actor, transport, queue) {
        match client.delete_if_empty(&dlq, &owner).await? {
            Emptied::Gone => {}
            Emptied::Later(wait) => later = later.max(Some(wait)),
            Emptied::Left(not_ours) => {
                let dlq = QueueStatus {
                    name: dlq,
                    transport: transport.name.clone(),
                    ..QueueStatus::default()
                };
                tell_left(context, actor, &dlq, &not_ours);
            }
            Emptied::Kept => {
                let text = format!(
                    "dead letter queue {dlq} on transport {} holds messages or has receivers: it stays; delete it at \
                     the broker when they are dealt with",
                    transport.name
                );
                let note = EventReason::DeadLettersKept;
                context.events.tell(actor, note, &text);
            }
        }
    }
    Ok(later.map_or(Emptied::Gone, Emptied::Later))
}

/// Records an Event that says why a queue outlives its actor (QUE-34).
pub(super) fn tell_left(
    context: &Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
    not_ours: &NotOurs,
) {
    let QueueStatus {
        name, transport, ..
    } = queue;
    let text = format!("queue {name} on transport {transport} stays: {not_ours}");
    context.events.tell(actor, EventReason::QueueLeft, &text);
}

/// The queue's own dead letter queues, without shared ones and without names that belong to another actor's queue. The
/// owner is looked up as late as possible: an actor may have claimed the name since this one was observed (QUE-14).
fn own_dead_letters(
    context: &Context,
    actor: &ActorRecord,
    transport: &Transport,
    queue: &QueueStatus,
) -> Vec<String> {
    let mut all = transport.all_own_dead_letters(&queue.name, &queue.dead_letters);
    let transports = &context.installation.transports;
    all.retain(|dlq| {
        let place = (&*transport.name, &**dlq);
        let owner = context
            .claims
            .owner_of(transports, place, &actor.metadata.key);
        owner.is_none()
    });
    all
}

/// The owner as the broker records it on the actor's queues.
pub(super) fn owner(actor: &ActorRecord) -> Owner {
    let key = &actor.metadata.key;
    Owner {
        namespace: key.namespace.to_string(),
        actor: key.name.to_string(),
        uid: actor.metadata.uid.to_string(),
    }
}
