//! Deletes retired queues once they are empty (QUE-13).

use std::time::Duration;

use asya_shared::api::QueueStatus;
use tracing::{debug, info};

use super::confirm::confirm;
use super::own_queues::OwnQueues;
use crate::broker::health::Finding;
use crate::broker::{BrokerError, Emptied};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::{NextCheck, after_check};
use crate::record::ActorRecord;

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
        let own = OwnQueues::new(context, actor, transport);
        match delete_if_empty(&own, &queue).await {
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
                own.announce_left(name, &not_ours);
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
async fn delete_if_empty(own: &OwnQueues<'_>, queue: &QueueStatus) -> Result<Emptied, BrokerError> {
    match own.delete_if_empty(&queue.name).await? {
        Emptied::Gone => own.delete_dead_letters(queue).await,
        other => Ok(other),
    }
}
