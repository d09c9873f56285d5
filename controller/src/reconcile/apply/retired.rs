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
use crate::broker::{BrokerError, Count, DeleteIfEmptyOutcome, DeletionGuard};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::{
    NextCheck, RetiredCheck, RetiredStep, after_check, after_retired_removal,
};
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
        maybe_created,
        never_verified,
        current,
        known_pods,
    } = planned;
    let count = queues.len() + maybe_created.len() + never_verified.len();
    if count == 0 {
        return Ok(checked);
    }
    let wait = context.retired_queue_schedule.wait(key);
    if !wait.is_zero() {
        checked.recheck_after = Some(wait);
        return Ok(checked);
    }
    let planned = PlannedState::new(context, actor, Some(&known_pods));
    let mut sooner = None;
    let confirmed = queues.into_iter().map(|queue| (queue, true));
    let possible = maybe_created.into_iter().map(|queue| (queue, false));
    for (queue, is_confirmed) in confirmed.chain(possible) {
        match delete(context, &planned, (&queue, is_confirmed), current.as_ref()).await {
            Ok((RetiredStep::Forget, _)) => checked.forgettable.push(queue),
            Ok((step, wait)) => {
                sooner = wait.map_or(sooner, |wait| Some(earlier(sooner, wait)));
                if step == RetiredStep::Confirm {
                    context.unrecorded_queues.confirm(key, &queue);
                    checked.confirmed.push(queue);
                }
            }
            Err(error) => match error.not_called_delay() {
                Some(wait) => sooner = Some(earlier(sooner, wait)),
                None => {
                    debug!(queue = queue.name, transport = queue.transport, %error, "cannot check retired queue");
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

/// Deletes a retired queue if it is empty. Returns what follows, and when to try again if that is known.
async fn delete(
    context: &Context,
    planned: &PlannedState<'_>,
    (queue, is_confirmed): (&QueueStatus, bool),
    current: Option<&QueueStatus>,
) -> Result<(RetiredStep, Option<Duration>), BrokerError> {
    let actor = planned.actor();
    let Ok(transport) = context.installation.transports.usable(&queue.transport) else {
        return Ok((RetiredStep::Keep, None));
    };
    let queues = ActorQueues::new(context, actor, transport, planned);
    if let Some(current) = current
        && is_same_at_broker(&queues, queue, current).await?
    {
        return Ok((RetiredStep::Forget, None));
    }
    let unrecorded = context
        .unrecorded_queues
        .created_as(&actor.metadata.key, queue);
    let removal = queues.delete_retired(queue, unrecorded.as_ref()).await?;
    // Nothing shows that an unrecorded queue ever was the actor's.
    if is_confirmed && unrecorded.is_none() {
        match &removal.outcome {
            DeleteIfEmptyOutcome::Deleted => {
                info!(
                    queue = queue.name,
                    transport = queue.transport,
                    "deleted empty retired queue"
                );
            }
            DeleteIfEmptyOutcome::NotOwned(refusal) => queues.report_kept(&queue.name, refusal),
            DeleteIfEmptyOutcome::InUse | DeleteIfEmptyOutcome::Recheck(_) => {}
        }
    }
    let wait = match removal.outcome {
        DeleteIfEmptyOutcome::Recheck(wait) => Some(wait),
        _ => None,
    };
    Ok((after_retired_removal(is_confirmed, &removal), wait))
}

/// Whether a retired queue is the actor's `current` one, reached through another transport: two Secrets, or two
/// endpoints of one account (QUE-36).
async fn is_same_at_broker(
    queues: &ActorQueues<'_>,
    queue: &QueueStatus,
    current: &QueueStatus,
) -> Result<bool, BrokerError> {
    let transports = &queues.context.installation.transports;
    let transport = transports.usable(&current.transport).ok();
    let Some(transport) = transport.filter(|_| current.name == queue.name) else {
        return Ok(false);
    };
    let Some(id) = queues.client.id(&queue.name).await? else {
        return Ok(false);
    };
    let current_queues = ActorQueues::new(queues.context, queues.actor, transport, queues.guard);
    Ok(current_queues.client.id(&current.name).await? == Some(id))
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
