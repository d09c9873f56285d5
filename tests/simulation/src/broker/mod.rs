//! In-memory brokers.

pub mod rabbitmq;
pub mod sqs;

use fastrand::Rng;
use rabbitmq::Rabbitmq;
use sqs::Sqs;

/// A broker.
pub enum Broker {
    /// One `RabbitMQ`.
    Rabbitmq(Rabbitmq),
    /// One region of an account at SQS.
    Sqs(Sqs),
}

impl Broker {
    /// An empty broker for the transport with this name.
    #[must_use]
    pub fn new(transport: &str) -> Self {
        if sqs::TRANSPORTS.contains(&transport) {
            Self::Sqs(Sqs::new(transport))
        } else {
            Self::Rabbitmq(Rabbitmq::new(transport))
        }
    }

    /// The names of the broker's queues.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Rabbitmq(broker) => broker.queues.keys().cloned().collect(),
            Self::Sqs(broker) => broker.names().map(str::to_owned).collect(),
        }
    }

    /// The messages in a queue, if it exists.
    #[must_use]
    pub fn messages(&self, queue: &str) -> Option<u64> {
        match self {
            Self::Rabbitmq(broker) => broker.queues.get(queue).map(|queue| queue.messages),
            Self::Sqs(broker) => broker.messages(queue),
        }
    }

    /// Adds messages to a queue, if it exists.
    pub fn publish(&mut self, queue: &str, messages: u64) {
        let before = self.messages(queue).unwrap_or_default();
        self.set_messages(queue, before + messages);
    }

    /// Consumes all messages of a queue.
    pub fn consume(&mut self, queue: &str) {
        match self {
            Self::Rabbitmq(_) => self.set_messages(queue, 0),
            Self::Sqs(broker) => broker.consume(queue),
        }
    }

    fn set_messages(&mut self, queue: &str, messages: u64) {
        match self {
            Self::Rabbitmq(broker) => {
                if let Some(queue) = broker.queues.get_mut(queue) {
                    queue.messages = messages;
                }
            }
            Self::Sqs(broker) => broker.set_messages(queue, messages),
        }
    }

    /// Deletes a queue or its dead letter queue, as another client might.
    pub fn lose(&mut self, queue: &str, random: &mut Rng) {
        let dlq = format!("{queue}{}", sqs::DLQ_SUFFIX);
        let has_dlq = self.messages(&dlq).is_some();
        self.remove(if has_dlq && random.bool() {
            &dlq
        } else {
            queue
        });
    }

    /// Removes a queue with its messages.
    pub fn remove(&mut self, queue: &str) {
        match self {
            Self::Rabbitmq(broker) => broker.remove(queue),
            Self::Sqs(broker) => broker.remove(queue),
        }
    }

    /// Namespace and name of the actor that owns the queue, by its owner tag.
    #[must_use]
    pub fn owner_of(&self, queue: &str) -> Option<(String, String)> {
        match self {
            Self::Rabbitmq(broker) => broker.owner_of(queue),
            Self::Sqs(broker) => broker.owner_of(queue),
        }
    }

    /// The actor's queue with which this queue must be deleted: itself, or the one whose dead letters it takes. `None`
    /// for a dead letter queue that has been used, because its messages are kept.
    #[must_use]
    pub fn actors_queue(&self, queue: &str) -> Option<String> {
        if let Self::Sqs(broker) = self
            && broker.is_dlq(queue)
        {
            let of_queue = queue.strip_suffix(sqs::DLQ_SUFFIX);
            let of_queue = of_queue.filter(|_| !broker.was_used(queue));
            return of_queue.map(str::to_owned);
        }
        self.owner_of(queue).map(|_| queue.to_owned())
    }

    /// Why an existing queue does not receive the actor's messages, or would not handle them correctly.
    #[must_use]
    pub fn problem(&self, queue: &str, actor: &str) -> Option<String> {
        match self {
            Self::Rabbitmq(broker) => {
                let routes = broker.routes_to(queue);
                let arrive = routes.contains(queue) && routes.contains(actor);
                (!arrive).then(|| format!("is reached by {routes:?} only"))
            }
            Self::Sqs(broker) => broker.problem(queue),
        }
    }
}
