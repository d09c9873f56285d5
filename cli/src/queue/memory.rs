//! An in-memory broker. Like real ones, it counts deliveries and drops messages that were delivered too often.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::broker::{Delivery, Moved, QueueClient, SendFailure, Settlement, Size};
use crate::answer::Failure;
use crate::interrupt::Interrupt;

/// A message in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub body: String,
    pub deliveries: u64,
    pub source: Option<String>,
}

/// A broker with queues by name.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of a broker"
)]
pub struct Memory {
    pub queues: BTreeMap<String, VecDeque<Stored>>,
    pub consumers: u64,
    pub limit: Option<u64>,
    /// How many copies the broker accepts before it fails.
    pub accepts: Option<usize>,
    /// How often the broker reports the size of a queue before it fails.
    pub reports: Option<usize>,
    /// Whether the broker moves dead letters itself.
    pub moves: bool,
    /// A message that arrives in a queue right after the queue was counted.
    pub arrives: Option<Stored>,
    /// Where a sent message arrives, instead of the actor's queue.
    pub delivers_to: Option<String>,
    /// Messages that others hold, if the broker reports them.
    pub processing: Option<u64>,
    /// Whether the connection breaks after a message was removed.
    pub is_lost_after_removals: bool,
    /// Whether the connection breaks after a message was sent, before it is confirmed.
    pub is_lost_after_sends: bool,
    is_lost: bool,
    held: Vec<(String, Stored)>,
}

impl Memory {
    pub fn with(queues: &[(&str, &[&str])]) -> Self {
        let queues = queues.iter().map(|(name, bodies)| {
            let stored = bodies.iter().map(|body| Stored {
                body: (*body).to_owned(),
                ..Stored::default()
            });
            ((*name).to_owned(), stored.collect())
        });
        Self {
            queues: queues.collect(),
            ..Self::default()
        }
    }

    pub fn bodies(&self, queue: &str) -> Vec<&str> {
        self.queues[queue].iter().map(|it| &*it.body).collect()
    }

    /// Requeues unacknowledged messages, as a broker does when this program ends.
    pub fn disconnect(&mut self) {
        for (queue, mut message) in std::mem::take(&mut self.held).into_iter().rev() {
            message.deliveries += 1;
            self.queue(&queue).push_front(message);
        }
    }

    fn queue(&mut self, name: &str) -> &mut VecDeque<Stored> {
        self.queues.entry(name.to_owned()).or_default()
    }

    fn settle(&mut self, message: &Stored) {
        let at = self.held.iter().position(|(_, held)| held == message);
        self.held.remove(at.expect("it is held"));
    }
}

impl QueueClient for Memory {
    type Handle = Stored;

    async fn size(&mut self, queue: &str) -> Result<Option<Size>, Failure> {
        if let Some(reports) = &mut self.reports {
            *reports = reports
                .checked_sub(1)
                .ok_or_else(|| Failure::new("the connection was lost"))?;
        }
        if self.is_lost {
            return Err(Failure::new("the connection was lost"));
        }
        let (consumers, processing) = (self.consumers, self.processing);
        let size = self.queues.get(queue).map(|it| Size {
            waiting: it.len() as u64,
            processing,
            consumers: Some(consumers),
        });
        if size.is_some()
            && let Some(message) = self.arrives.take()
        {
            self.queue(queue).push_back(message);
        }
        Ok(size)
    }

    async fn take(&mut self, queue: &str, count: usize) -> Result<Vec<Delivery<Stored>>, Failure> {
        let all = self.queue(queue);
        let taken: Vec<Stored> = all.drain(..count.min(all.len())).collect();
        let held = taken.iter().map(|it| (queue.to_owned(), it.clone()));
        self.held.extend(held);
        let deliveries = taken.into_iter().map(|message| Delivery {
            deliveries: Some(message.deliveries),
            id: None,
            source: message.source.clone(),
            body: Bytes::from(message.body.clone()),
            handle: message,
        });
        Ok(deliveries.collect())
    }

    async fn keep(&mut self, _: &str, _: &mut [Delivery<Stored>]) -> Result<(), Failure> {
        Ok(())
    }

    async fn put_back(&mut self, queue: &str, held: Vec<Delivery<Stored>>) -> Result<(), Failure> {
        for delivery in held {
            let mut message = delivery.handle;
            self.settle(&message);
            message.deliveries += 1;
            if self.limit.is_none_or(|limit| message.deliveries < limit) {
                // Behind those that were put back earlier.
                let all = self.queue(queue);
                let at = all.iter().take_while(|it| it.deliveries > 0).count();
                all.insert(at, message);
            }
        }
        Ok(())
    }

    async fn relocate(
        &mut self,
        from: &str,
        delivery: Delivery<Stored>,
        to: &str,
    ) -> Result<Settlement, Failure> {
        let sent = self.send(to, "", delivery.body.clone()).await;
        sent.map_err(|failure| failure.of_copy(from, to))?;
        self.remove(from, delivery).await
    }

    async fn remove(&mut self, _: &str, delivery: Delivery<Stored>) -> Result<Settlement, Failure> {
        self.settle(&delivery.handle);
        self.is_lost = self.is_lost_after_removals;
        Ok(Settlement::Done)
    }

    async fn send(&mut self, queue: &str, _: &str, body: Bytes) -> Result<(), SendFailure> {
        if let Some(accepts) = &mut self.accepts {
            *accepts = accepts
                .checked_sub(1)
                .ok_or_else(|| Failure::new("the queue is full"))?;
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        let queue = self.delivers_to.clone().unwrap_or_else(|| queue.to_owned());
        self.queue(&queue).push_back(Stored {
            body,
            ..Stored::default()
        });
        self.is_lost = self.is_lost_after_sends;
        if self.is_lost {
            return Err(SendFailure::Unconfirmed(Failure::new(
                "the connection was lost",
            )));
        }
        Ok(())
    }

    async fn move_all(
        &mut self,
        dlq: &str,
        queue: &str,
        _: &Interrupt,
    ) -> Result<Option<Moved>, Failure> {
        if !self.moves {
            return Ok(None);
        }
        let all = std::mem::take(self.queue(dlq));
        let count = all.len() as u64;
        self.queue(queue).extend(all);
        Ok(Some(Moved {
            count,
            interrupted: false,
        }))
    }

    fn delivery_limit(&self) -> Option<u64> {
        self.limit
    }

    const LIMIT_SOURCE: &str = "as its test says";
}
