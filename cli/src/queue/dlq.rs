//! `dlq`: an actor's dead letters.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::access::{DeadLetters, Names};
use super::broker::{Delivery, QueueClient, Settlement};
use super::peek::{belongs, put_back};
use crate::answer::Failure;
use crate::interrupt::Interrupt;
use crate::output::print_error;

/// Maximum number of messages held at a time.
const BATCH: usize = 10;
/// How often in a row the broker may deliver only messages that it has delivered before. Each time hides these again,
/// so another message comes soon if there is one.
const MAX_REPEATED: u32 = 10;

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// What happened to the dead letters. Each message counts once, however often the broker delivers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DlqOutcome {
    /// Messages that were moved or deleted.
    pub done: u64,
    /// Messages of other actors, or of none, in a shared queue.
    pub others: u64,
    /// Those of `done` that may still be in the queue: they took longer than the broker hides messages.
    pub may_remain: u64,
    /// Whether the user ended the command early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// What to do with each of an actor's dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterAction {
    Redrive,
    Delete,
}

/// Moves an actor's dead letters back to its queue. Moves only those that are there now, so that a message that fails
/// again is not moved twice. An interrupt ends this between two messages.
///
/// # Errors
/// If the broker fails; the text says how many were moved until then.
pub async fn redrive<B: QueueClient>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    max: Option<u64>,
    interrupt: &Interrupt,
) -> Result<DlqOutcome, Failure> {
    if max.is_none()
        && !dlq.shared
        && let Some(moved) = broker.move_all(&dlq.queue, &names.queue, interrupt).await?
    {
        return Ok(DlqOutcome {
            done: moved.count,
            interrupted: moved.interrupted,
            ..DlqOutcome::default()
        });
    }
    let waiting = count_waiting(broker, dlq).await?;
    let action = DeadLetterAction::Redrive;
    DeadLetterRun::new(broker, names, dlq, max, action)
        .process(waiting, interrupt)
        .await
}

/// Deletes an actor's dead letters: at most `count`, the number to which the user has consented. There may be fewer by
/// then.
///
/// # Errors
/// As [`redrive`].
pub async fn purge<B: QueueClient>(
    broker: &mut B,
    names: &Names,
    dlq: &DeadLetters,
    max: Option<u64>,
    count: u64,
    interrupt: &Interrupt,
) -> Result<DlqOutcome, Failure> {
    let waiting = count_waiting(broker, dlq).await?;
    // One by one: purging the queue would also delete messages that have arrived since the count and, on SQS, messages
    // that others hold.
    let action = DeadLetterAction::Delete;
    DeadLetterRun::new(broker, names, dlq, max, action)
        .process(waiting.min(count), interrupt)
        .await
}

async fn count_waiting<B: QueueClient>(broker: &mut B, dlq: &DeadLetters) -> Result<u64, Failure> {
    let size = broker.size(&dlq.queue).await?;
    Ok(size.unwrap_or_default().waiting)
}

/// A message that this run has delivered before.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It is in `others`, at this index.
    Other(usize),
    /// Moved or deleted; `late`: counted among those that may remain.
    Settled { late: bool },
}

/// Reports the progress of a command from time to time.
struct Progress {
    next: Instant,
}

impl Progress {
    fn new() -> Self {
        Self {
            next: Instant::now() + PROGRESS_INTERVAL,
        }
    }

    /// The progress report to print now, if one is due.
    fn due(&mut self, action: DeadLetterAction, done: u64, seen: u64, all: u64) -> Option<String> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + PROGRESS_INTERVAL;
        let word = match action {
            DeadLetterAction::Redrive => "moved",
            DeadLetterAction::Delete => "deleted",
        };
        Some(format!("{seen} of {all} messages looked at, {done} {word}"))
    }
}

/// A run over an actor's dead letters.
struct DeadLetterRun<'a, B: QueueClient> {
    broker: &'a mut B,
    names: &'a Names,
    dlq: &'a DeadLetters,
    /// The maximum number to move or delete; `None` for all.
    max: Option<u64>,
    action: DeadLetterAction,
    done: u64,
    may_remain: u64,
    /// Deletions that the broker may not have processed yet.
    unconfirmed: u64,
    /// Messages that were taken but not looked at yet.
    in_hand: VecDeque<Delivery<B::Handle>>,
    /// Messages of others. They are held until the end: if they were put back earlier, they would be delivered again.
    others: Vec<Delivery<B::Handle>>,
    /// By the broker's id, if the broker may redeliver a message that is held.
    known: HashMap<String, Known>,
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
            may_remain: 0,
            unconfirmed: 0,
            in_hand: VecDeque::new(),
            others: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Processes `waiting` dead letters, until the maximum is done or an interrupt comes.
    async fn process(mut self, waiting: u64, interrupt: &Interrupt) -> Result<DlqOutcome, Failure> {
        let result = self.process_batches(waiting, interrupt).await;
        let outcome = DlqOutcome {
            done: self.done,
            others: self.others.len() as u64,
            may_remain: self.may_remain,
            interrupted: self.left(waiting) > 0 && interrupt.has_come(),
        };
        let held = self.others.into_iter().chain(self.in_hand).collect();
        let returned = put_back(self.broker, &self.dlq.queue, held).await;
        result
            .and(returned.map(drop))
            .map(|()| outcome)
            .map_err(|why| {
                let (done, queue) = (outcome.done, &self.dlq.queue);
                let remaining = match outcome.may_remain {
                    0 => String::new(),
                    count => format!(" as may be {count} of these"),
                };
                Failure::new(format!(
                    "{why}; done before that: {done}, the others are still in {queue}{remaining}"
                ))
            })
    }

    async fn process_batches(
        &mut self,
        waiting: u64,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let mut repeated = 0;
        let mut progress = Progress::new();
        while !interrupt.has_come()
            && let left @ 1.. = self.left(waiting)
        {
            // If messages are redelivered, take as many as possible, so that new ones are among them.
            let wanted = match repeated {
                0 => usize::try_from(left).unwrap_or(BATCH),
                _ => BATCH,
            };
            self.broker.keep(&self.dlq.queue, &mut self.others).await?;
            let taken = self.broker.take(&self.dlq.queue, wanted.min(BATCH)).await?;
            if taken.is_empty() {
                break;
            }
            let before = self.seen();
            self.in_hand.extend(taken);
            self.process_batch(waiting, interrupt).await?;
            if let Some(text) = progress.due(self.action, self.done, self.seen(), waiting)
                && io::stderr().is_terminal()
            {
                print_error(&text);
            }
            repeated = if self.seen() == before {
                repeated + 1
            } else {
                0
            };
            if repeated == MAX_REPEATED {
                return Err(Failure::new(format!(
                    "of {waiting} messages, the broker delivers the same {before} again and again; try again later"
                )));
            }
        }
        Ok(())
    }

    /// How many messages were looked at, each counted once.
    fn seen(&self) -> u64 {
        self.done + self.unconfirmed + self.others.len() as u64
    }

    /// How many messages remain to be looked at, or may still be moved or deleted.
    fn left(&self, waiting: u64) -> u64 {
        let may_be_done = self.max.unwrap_or(u64::MAX) - self.done - self.unconfirmed;
        waiting.saturating_sub(self.seen()).min(may_be_done)
    }

    async fn process_batch(&mut self, waiting: u64, interrupt: &Interrupt) -> Result<(), Failure> {
        while self.left(waiting) > 0
            && !interrupt.has_come()
            && let Some(delivery) = self.in_hand.pop_front()
        {
            let known = delivery.id.as_ref().and_then(|id| self.known.get(id));
            match known.copied() {
                None => self.process_new(delivery).await?,
                // The earlier receipt no longer holds it.
                Some(Known::Other(at)) => self.others[at] = delivery,
                Some(Known::Settled { late }) => self.remove_again(delivery, late).await?,
            }
        }
        if self.unconfirmed > 0 {
            // A response shows that the broker has processed the deletions.
            count_waiting(self.broker, self.dlq).await?;
            self.done += std::mem::take(&mut self.unconfirmed);
        }
        Ok(())
    }

    async fn process_new(&mut self, delivery: Delivery<B::Handle>) -> Result<(), Failure> {
        let id = delivery.id.clone();
        let queue = &self.dlq.queue;
        let known = if belongs(self.names, self.dlq, &delivery) {
            let settlement = match self.action {
                DeadLetterAction::Redrive => {
                    let to = &self.names.queue;
                    self.broker.relocate(queue, delivery, to).await?
                }
                DeadLetterAction::Delete => self.broker.remove(queue, delivery).await?,
            };
            // It will be redelivered, and is looked at then.
            if settlement == Settlement::Lapsed {
                return Ok(());
            }
            match self.action {
                DeadLetterAction::Redrive => self.done += 1,
                DeadLetterAction::Delete => self.unconfirmed += 1,
            }
            let late = settlement == Settlement::Late;
            self.may_remain += u64::from(late);
            Known::Settled { late }
        } else {
            self.others.push(delivery);
            Known::Other(self.others.len() - 1)
        };
        self.known.extend(id.map(|id| (id, known)));
        Ok(())
    }

    /// Removes a message that was moved or deleted before, but was redelivered.
    async fn remove_again(
        &mut self,
        delivery: Delivery<B::Handle>,
        late: bool,
    ) -> Result<(), Failure> {
        let id = delivery.id.clone();
        let settlement = self.broker.remove(&self.dlq.queue, delivery).await?;
        let is_late = settlement != Settlement::Done;
        self.may_remain = self.may_remain + u64::from(is_late) - u64::from(late);
        let known = Known::Settled { late: is_late };
        self.known.extend(id.map(|id| (id, known)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/cli.md: `redrive` and `purge` report their progress.
    #[tokio::test(start_paused = true)]
    async fn progress_is_told_every_five_seconds() {
        let mut progress = Progress::new();
        let mut told = Vec::new();
        for second in 1..=11 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let text = progress.due(DeadLetterAction::Delete, second, second + 1, 100);
            told.extend(text);
        }
        assert_eq!(
            told,
            [
                "6 of 100 messages looked at, 5 deleted",
                "11 of 100 messages looked at, 10 deleted"
            ]
        );
    }
}
