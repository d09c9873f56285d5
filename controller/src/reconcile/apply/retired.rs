//! Deletes retired queues once they are empty, and forgets those that never existed (QUE-13).
//!
//! Decides here whether a check is due, what is reported and what is forgotten: the schedule and the queues that no
//! status names are in memory, and both change with each response of a broker.

use std::time::Duration;

use asya_shared::api::QueueStatus;
use tracing::{debug, info};

use super::actor_queues::ActorQueues;
use super::verify_unchanged::PlannedState;
use crate::broker::rechecks::RecheckReason;
use crate::broker::{BrokerError, Count, DeleteIfEmptyOutcome, DeletionGuard, Depth, QueueIdMatch};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::RetiredQueues;
use crate::reconcile::plan::retired::{
    NextCheck, RetiredCheck, RetiredStep, after_check, after_retired_removal, step_without_removal,
};
use crate::record::{ActorRecord, Key};

/// Checks the retired queues at their brokers, unless that was done recently. Broker errors are not reported in status,
/// because they do not affect the actor.
pub(super) async fn check(
    context: &Context,
    actor: &ActorRecord,
    planned: RetiredCheck,
) -> Result<RetiredQueues, Error> {
    let key = &actor.metadata.key;
    let RetiredCheck {
        queues,
        maybe_created,
        never_verified,
        current,
        known_pods,
    } = planned;
    let count = queues.len() + maybe_created.len() + never_verified.len();
    if count == 0 {
        return Ok(RetiredQueues::default());
    }
    let wait = context.retired_queue_schedule.wait(key);
    if !wait.is_zero() {
        return Ok(RetiredQueues {
            recheck_after: Some(wait),
            ..RetiredQueues::default()
        });
    }
    let planned = PlannedState::new(context, actor, Some(&known_pods));
    let confirmed = queues.into_iter().map(|queue| RetiredQueue {
        queue,
        is_confirmed: true,
    });
    let possible = maybe_created.into_iter().map(|queue| RetiredQueue {
        queue,
        is_confirmed: false,
    });
    let mut attempts = Attempts::default();
    for retired in confirmed.chain(possible) {
        let result = delete_if_empty(context, &planned, &retired, current.as_ref()).await;
        attempts.record(context, key, retired.queue, result);
    }
    let Attempts {
        mut checked,
        retry_in,
    } = attempts;
    for queue in never_verified {
        if is_absent(context, actor, &queue, &planned).await {
            checked.forgettable.push(queue);
        }
    }
    for queue in &checked.forgettable {
        context.unrecorded_queues.remove(key, queue);
    }
    checked.recheck_after = schedule_next(context, key, count, checked.forgettable.len(), retry_in);
    Ok(checked)
}

/// Schedules the next check, unless all `checked` queues are `forgotten`. Returns when to requeue.
fn schedule_next(
    context: &Context,
    key: &Key,
    checked: usize,
    forgotten: usize,
    retry_in: Option<Duration>,
) -> Option<Duration> {
    let next = after_check(checked, forgotten);
    if next.rechecks_queue {
        context.queue_rechecks.request(key, RecheckReason::Changed);
    }
    let now = next.rechecks_queue.then_some(Duration::ZERO);
    match next.schedule {
        NextCheck::None => {
            context.retired_queue_schedule.forget(key);
            now
        }
        NextCheck::Now => now,
        NextCheck::Scheduled => Some(context.retired_queue_schedule.record_check(key, retry_in)),
    }
}

/// Results of the attempts to delete retired queues.
#[derive(Default)]
struct Attempts {
    checked: RetiredQueues,
    /// The earliest time at which one can be tried again, if that is known.
    retry_in: Option<Duration>,
}

impl Attempts {
    fn record(
        &mut self,
        context: &Context,
        key: &Key,
        queue: QueueStatus,
        result: Result<DeletionAttempt, BrokerError>,
    ) {
        let attempt = match result {
            Ok(attempt) => attempt,
            Err(error) => {
                let wait = error.not_called_delay();
                if wait.is_none() {
                    debug!(queue = queue.name, transport = queue.transport, %error, "cannot check retired queue");
                }
                return self.retry_within(wait);
            }
        };
        self.retry_within(attempt.retry_in);
        match attempt.step {
            RetiredStep::Forget => self.checked.forgettable.push(queue),
            RetiredStep::Confirm => {
                context.unrecorded_queues.confirm(key, &queue);
                self.checked.confirmed.push(queue);
            }
            RetiredStep::Keep => {}
        }
    }

    fn retry_within(&mut self, wait: Option<Duration>) {
        self.retry_in = self.retry_in.into_iter().chain(wait).min();
    }
}

/// A queue that the actor no longer uses.
struct RetiredQueue {
    queue: QueueStatus,
    /// It is known to be the actor's.
    is_confirmed: bool,
}

/// Result of an attempt to delete a retired queue.
struct DeletionAttempt {
    step: RetiredStep,
    /// When to try again, if that is known.
    retry_in: Option<Duration>,
}

impl From<RetiredStep> for DeletionAttempt {
    fn from(step: RetiredStep) -> Self {
        Self {
            step,
            retry_in: None,
        }
    }
}

/// Deletes a retired queue if it is empty, unless it is the `current` one.
async fn delete_if_empty(
    context: &Context,
    planned: &PlannedState<'_>,
    retired: &RetiredQueue,
    current: Option<&QueueStatus>,
) -> Result<DeletionAttempt, BrokerError> {
    let RetiredQueue {
        queue,
        is_confirmed,
    } = retired;
    let actor = planned.actor();
    let Ok(transport) = context.installation.transports.usable(&queue.transport) else {
        return Ok(RetiredStep::Keep.into());
    };
    let queues = ActorQueues::new(context, actor, transport, planned);
    if let Some(current) = current {
        let id_match = compare_at_broker(&queues, queue, current).await?;
        let holds_messages = match id_match {
            QueueIdMatch::Possible => holds_messages(&queues, queue).await?,
            QueueIdMatch::Same | QueueIdMatch::Different => false,
        };
        if let Some(step) = step_without_removal(id_match, holds_messages) {
            if step == RetiredStep::Forget && id_match == QueueIdMatch::Possible {
                let (former, present) = (&queue.transport, &current.transport);
                info!(
                    queue = queue.name,
                    former,
                    present,
                    "nothing tells the queues of the two transports apart, so none is deleted"
                );
            }
            return Ok(step.into());
        }
    }
    let unrecorded = context
        .unrecorded_queues
        .created_as(&actor.metadata.key, queue);
    let removal = queues.delete_retired(queue, unrecorded.as_ref()).await?;
    // Nothing shows that an unrecorded queue ever was the actor's.
    if *is_confirmed && unrecorded.is_none() {
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
    Ok(DeletionAttempt {
        step: after_retired_removal(*is_confirmed, &removal),
        retry_in: match removal.outcome {
            DeleteIfEmptyOutcome::Recheck(wait) => Some(wait),
            _ => None,
        },
    })
}

/// Whether a retired queue is the actor's `current` one, reached through another transport: two Secrets or two
/// endpoints of one account, two addresses of one broker (QUE-36).
async fn compare_at_broker(
    queues: &ActorQueues<'_>,
    queue: &QueueStatus,
    current: &QueueStatus,
) -> Result<QueueIdMatch, BrokerError> {
    let transports = &queues.context.installation.transports;
    let transport = transports.usable(&current.transport).ok();
    let Some(transport) = transport.filter(|_| current.name == queue.name) else {
        return Ok(QueueIdMatch::Different);
    };
    let Some(id) = queues.client.id(&queue.name).await? else {
        return Ok(QueueIdMatch::Different);
    };
    let current_queues = ActorQueues::new(queues.context, queues.actor, transport, queues.guard);
    let current_id = current_queues.client.id(&current.name).await?;
    Ok(current_id.map_or(QueueIdMatch::Different, |current| id.compare(&current)))
}

async fn holds_messages(
    queues: &ActorQueues<'_>,
    queue: &QueueStatus,
) -> Result<bool, BrokerError> {
    let mut counts = queues
        .client
        .depths(std::slice::from_ref(&queue.name))
        .await;
    let count = counts.pop().transpose()?;
    Ok(count != Some(Count::Messages(Depth::default())))
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
