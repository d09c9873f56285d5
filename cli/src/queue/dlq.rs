//! `dlq`: an actor's dead letters.

use serde::Serialize;

use super::access::{DeadLetters, Names};
use super::broker::Broker;
use super::peek::{belongs, put_back};
use crate::answer::Failure;

/// Messages that are held at a time.
const BATCH: usize = 10;

/// The outcome for dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Messages that were moved or deleted.
    pub done: u64,
    /// Messages of other actors, or of none, in a shared queue.
    pub others: u64,
}

/// The operation on each of an actor's dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterAction {
    Redrive,
    Delete,
}

/// Moves an actor's dead letters back to its queue: those that are there now, so that a message that fails again is
/// not moved twice.
///
/// # Errors
/// If the broker fails; the text says how many were moved until then.
pub async fn redrive<B: Broker>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    max: Option<u64>,
) -> Result<Done, Failure> {
    if max.is_none()
        && !dlq.shared
        && let Some(done) = broker.move_all(&dlq.queue, &names.queue).await?
    {
        return Ok(Done { done, others: 0 });
    }
    let waiting = waiting(broker, dlq).await?;
    process_dead_letters(
        broker,
        names,
        dlq,
        (waiting, max),
        DeadLetterAction::Redrive,
    )
    .await
}

/// Deletes an actor's dead letters: no more than `count`, to which the user has consented, and which may be fewer than
/// there are by then.
///
/// # Errors
/// As [`redrive`].
pub async fn purge<B: Broker>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    max: Option<u64>,
    count: u64,
) -> Result<Done, Failure> {
    let waiting = waiting(broker, dlq).await?;
    let deletes_all = !dlq.shared && max.is_none() && waiting <= count;
    if deletes_all && let Some(done) = broker.purge(&dlq.queue).await? {
        return Ok(Done { done, others: 0 });
    }
    let peeked = waiting.min(count);
    process_dead_letters(broker, names, dlq, (peeked, max), DeadLetterAction::Delete).await
}

async fn waiting<B: Broker>(broker: &mut B, dlq: &DeadLetters) -> Result<u64, Failure> {
    let size = broker.size(&dlq.queue).await?;
    Ok(size.unwrap_or_default().waiting)
}

/// Looks at the next `waiting` dead letters, until `max` of them are done.
async fn process_dead_letters<B: Broker>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    (waiting, max): (u64, Option<u64>),
    action: DeadLetterAction,
) -> Result<Done, Failure> {
    let mut outcome = Done::default();
    // Those of others are held until the end: put back before, they would come again.
    let mut others = Vec::new();
    let result = process_batches(
        broker,
        names,
        dlq,
        (waiting, max),
        action,
        &mut outcome,
        &mut others,
    );
    let result = result.await;
    outcome.others = others.len() as u64;
    let returned = put_back(broker, &dlq.queue, others).await.map(drop);
    result.and(returned).map(|()| outcome).map_err(|why| {
        let done = outcome.done;
        Failure::new(format!(
            "{why}; done before that: {done}, the others are still in {}",
            dlq.queue
        ))
    })
}

async fn process_batches<B: Broker>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    (waiting, max): (u64, Option<u64>),
    action: DeadLetterAction,
    outcome: &mut Done,
    others: &mut Vec<super::broker::Delivery<B::Handle>>,
) -> Result<(), Failure> {
    let mut peeked = 0;
    while peeked < waiting {
        let wanted = (waiting - peeked).min(max.unwrap_or(u64::MAX) - outcome.done);
        let wanted = usize::try_from(wanted).unwrap_or(BATCH).min(BATCH);
        if wanted == 0 {
            break;
        }
        let taken = broker.take(&dlq.queue, wanted).await?;
        if taken.is_empty() {
            break;
        }
        let mut deleted = 0;
        for delivery in taken {
            peeked += 1;
            if !belongs(names, dlq, &delivery) {
                others.push(delivery);
                continue;
            }
            match action {
                DeadLetterAction::Redrive => {
                    broker.relocate(&dlq.queue, delivery, &names.queue).await?;
                    outcome.done += 1;
                }
                DeadLetterAction::Delete => {
                    broker.remove(&dlq.queue, delivery).await?;
                    deleted += 1;
                }
            }
        }
        if deleted > 0 {
            // The answer shows that the broker has processed the deletions.
            self::waiting(broker, dlq).await?;
            outcome.done += deleted;
        }
    }
    Ok(())
}
