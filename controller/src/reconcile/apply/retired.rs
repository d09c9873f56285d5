//! Deletes retired queues once they are empty, and forgets those that never existed (QUE-13).
//!
//! Decides here whether a check is due, what is reported and what is forgotten: the schedule and the queues that no
//! status names are in memory, and both change with each response of a broker.

use std::time::Duration;

use asya_shared::api::QueueStatus;
use tracing::{debug, info};

use super::actor_queues::ActorQueues;
use super::verify_unchanged::PlannedState;
use crate::broker::health::RecheckReason;
use crate::broker::{Count, DeleteIfEmptyOutcome, DeletionGuard};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::{NextCheck, RetiredCheck, after_check};
use crate::record::ActorRecord;

/// Checks the retired queues at their brokers, unless that was done recently. Broker errors are not reported in status,
/// because they do not affect the actor.
pub(super) async fn check(
    context: &Context,
    actor: &ActorRecord,
    planned: RetiredCheck,
) -> Result<RetiredQueues, Error> {
    let key = &actor.metadata.key;
    let mut checked = RetiredQueues::default();
    let RetiredCheck {
        queues,
        never_verified,
        known_pods,
    } = planned;
    if queues.is_empty() && never_verified.is_empty() {
        return Ok(checked);
    }
    let wait = context.retired_queue_schedule.wait(key);
    if !wait.is_zero() {
        checked.recheck_after = Some(wait);
        return Ok(checked);
    }
    let planned = PlannedState::new(context, actor, Some(&known_pods));
    let (count, mut sooner) = (queues.len() + never_verified.len(), None);
    for queue in queues {
        let Ok(transport) = context.installation.transports.usable(&queue.transport) else {
            continue;
        };
        let (name, transport_name) = (&*queue.name, &*queue.transport);
        let queues = ActorQueues::new(context, actor, transport, &planned);
        let unrecorded = context.unrecorded_queues.created_as(key, &queue);
        match queues.delete_retired(&queue, unrecorded.as_ref()).await {
            Ok(DeleteIfEmptyOutcome::Deleted) => {
                if unrecorded.is_none() {
                    info!(
                        queue = name,
                        transport = transport_name,
                        "deleted empty retired queue"
                    );
                }
                checked.forgettable.push(queue);
            }
            // The queue no longer belongs to this actor, and never will again.
            Ok(DeleteIfEmptyOutcome::NotOwned(refusal)) => {
                // Nothing shows that an unrecorded queue ever was the actor's.
                if unrecorded.is_none() {
                    queues.report_kept(name, &refusal);
                }
                checked.forgettable.push(queue);
            }
            Ok(DeleteIfEmptyOutcome::InUse) => {}
            Ok(DeleteIfEmptyOutcome::Recheck(wait)) => sooner = Some(earlier(sooner, wait)),
            Err(error) => match error.not_called_delay() {
                Some(wait) => sooner = Some(earlier(sooner, wait)),
                None => {
                    debug!(queue = name, transport = transport_name, %error, "cannot check retired queue");
                }
            },
        }
    }
    for queue in never_verified {
        if is_absent(context, actor, &queue, &planned).await {
            checked.forgettable.push(queue);
        }
    }
    for queue in &checked.forgettable {
        context.unrecorded_queues.remove(key, queue);
    }
    let next = after_check(count, checked.forgettable.len());
    if next.rechecks_queue {
        context.queue_rechecks.request(key, RecheckReason::Changed);
        checked.recheck_after = Some(Duration::ZERO);
    }
    match next.schedule {
        NextCheck::None => context.retired_queue_schedule.forget(key),
        NextCheck::Now => {}
        NextCheck::Scheduled => {
            checked.recheck_after = Some(context.retired_queue_schedule.record_check(key, sooner));
        }
    }
    Ok(checked)
}

/// Whether neither the queue nor a dead letter queue of it exists: those are created first.
async fn is_absent(
    context: &Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
    guard: &dyn DeletionGuard,
) -> bool {
    let Ok(transport) = context.installation.transports.usable(&queue.transport) else {
        return false;
    };
    let queues = ActorQueues::new(context, actor, transport, guard);
    let mut names = queues.dead_letters_of(queue);
    names.push(queue.name.clone());
    let counts = queues.client.depths(&names).await;
    counts
        .iter()
        .all(|count| matches!(count, Ok(Count::NotFound)))
}

fn earlier(known: Option<Duration>, delay: Duration) -> Duration {
    known.map_or(delay, |known| known.min(delay))
}
