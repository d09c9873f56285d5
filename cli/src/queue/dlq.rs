//! `dlq`: an actor's dead letters.

use serde::Serialize;

use super::access::{DeadLetters, Names};
use super::broker::{Delivery, QueueClient};
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
pub async fn redrive<B: QueueClient>(
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
    let waiting = count_waiting(broker, dlq).await?;
    let action = DeadLetterAction::Redrive;
    DeadLetterRun::new(broker, names, dlq, max, action)
        .process(waiting)
        .await
}

/// Deletes an actor's dead letters: at most `count`, to which the user has consented, and which may be fewer than
/// there are by then.
///
/// # Errors
/// As [`redrive`].
pub async fn purge<B: QueueClient>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    max: Option<u64>,
    count: u64,
) -> Result<Done, Failure> {
    let waiting = count_waiting(broker, dlq).await?;
    // One by one: to purge the queue would also delete what has arrived since it was counted, and on SQS what others
    // hold.
    let action = DeadLetterAction::Delete;
    DeadLetterRun::new(broker, names, dlq, max, action)
        .process(waiting.min(count))
        .await
}

async fn count_waiting<B: QueueClient>(broker: &mut B, dlq: &DeadLetters) -> Result<u64, Failure> {
    let size = broker.size(&dlq.queue).await?;
    Ok(size.unwrap_or_default().waiting)
}

/// Dead letters of an actor that are being processed.
struct DeadLetterRun<'a, B: QueueClient> {
    broker: &'a mut B,
    names: &'a Names,
    dlq: &'a DeadLetters,
    /// How many are done at most; `None` for all.
    max: Option<u64>,
    action: DeadLetterAction,
    done: u64,
    /// Messages of others. They are held until the end: put back before, they would come again.
    others: Vec<Delivery<B::Handle>>,
}

impl<'a, B: QueueClient> DeadLetterRun<'a, B> {
    fn new(
        broker: &'a mut B,
        names: &'a Names,
        dlq: &'a DeadLetters,
        max: Option<u64>,
        action: DeadLetterAction,
    ) -> Self {
        Self {
            broker,
            names,
            dlq,
            max,
            action,
            done: 0,
            others: Vec::new(),
        }
    }

    /// Looks at the next `waiting` dead letters, until the maximum is done.
    async fn process(mut self, waiting: u64) -> Result<Done, Failure> {
        let result = self.process_batches(waiting).await;
        let outcome = Done {
            done: self.done,
            others: self.others.len() as u64,
        };
        let returned = put_back(self.broker, &self.dlq.queue, self.others).await;
        result
            .and(returned.map(drop))
            .map(|()| outcome)
            .map_err(|why| {
                Failure::new(format!(
                    "{why}; done before that: {}, the others are still in {}",
                    outcome.done, self.dlq.queue
                ))
            })
    }

    async fn process_batches(&mut self, waiting: u64) -> Result<(), Failure> {
        let mut peeked = 0;
        while peeked < waiting {
            let left = self.max.unwrap_or(u64::MAX) - self.done;
            let wanted = usize::try_from((waiting - peeked).min(left)).unwrap_or(BATCH);
            if wanted == 0 {
                break;
            }
            let taken = self.broker.take(&self.dlq.queue, wanted.min(BATCH)).await?;
            if taken.is_empty() {
                break;
            }
            peeked += taken.len() as u64;
            self.process_batch(taken).await?;
        }
        Ok(())
    }

    async fn process_batch(&mut self, taken: Vec<Delivery<B::Handle>>) -> Result<(), Failure> {
        let mut deleted = 0;
        for delivery in taken {
            if !belongs(self.names, self.dlq, &delivery) {
                self.others.push(delivery);
                continue;
            }
            match self.action {
                DeadLetterAction::Redrive => {
                    self.broker
                        .relocate(&self.dlq.queue, delivery, &self.names.queue)
                        .await?;
                    self.done += 1;
                }
                DeadLetterAction::Delete => {
                    self.broker.remove(&self.dlq.queue, delivery).await?;
                    deleted += 1;
                }
            }
        }
        if deleted > 0 {
            // The answer shows that the broker has processed the deletions.
            count_waiting(self.broker, self.dlq).await?;
            self.done += deleted;
        }
        Ok(())
    }
}
