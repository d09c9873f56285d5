//! Brokers in memory.

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
    /// An empty broker for the transport of that name.
    #[must_use]
    pub fn new(transport: &str) -> Self {
        if sqs::TRANSPORTS.contains(&transport) {
            Self::Sqs(Sqs::new(transport))
        } else {
            Self::Rabbitmq(Rabbitmq::new(transport))
        }
    }

    /// The names of its queues.
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

    /// Messages arrive in a queue, if it exists.
    pub fn publish(&mut self, queue: &str, messages: u64) {
        let before = self.messages(queue).unwrap_or_default();
        self.set_messages(queue, before + messages);
    }

    /// All messages of a queue are received.
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

    /// Somebody deletes a queue, or its dead letter queue.
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

    /// Namespace and name of the actor that a queue is marked for.
    #[must_use]
    pub fn owner_of(&self, queue: &str) -> Option<(String, String)> {
        match self {
            Self::Rabbitmq(broker) => broker.owner_of(queue),
            Self::Sqs(broker) => broker.owner_of(queue),
        }
    }

    /// The queue of an actor with which this queue must go: itself, or the one whose dead letters it takes. Dead
    /// letters may have been left.
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

    /// Why messages for an actor do not arrive in its queue, which exists, or are not handled as they should be.
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
