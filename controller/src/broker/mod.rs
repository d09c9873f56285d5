//! Queues at the brokers: one client per transport and credential, behind one trait.

mod brokers;
mod circuit;
pub mod claims;
mod cluster;
mod credentials;
pub mod depths;
mod empty_confirmations;
mod error;
mod gate;
pub mod health;
mod pool;
mod rabbitmq;
pub mod retired_queue_schedule;
mod session;
mod sqs;

#[cfg(test)]
mod tests;

use std::time::Duration;

use asya_shared::transport::QueueOf;
use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;
use futures::future::BoxFuture;

pub use brokers::Brokers;
pub use error::BrokerError;

/// State of an actor's queue at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueCheck {
    /// It does not exist.
    Absent,
    /// It exists and serves.
    Serves(Serving),
    /// It exists and serves, but carries this actor's mark only after [`QueueClient::update`] (QUE-35).
    Unmarked,
    /// It exists, and [`QueueClient::update`] brings it to what is wanted and keeps its messages.
    Drifted,
    /// It exists, does not serve, and cannot be changed without losing messages (QUE-6).
    Differs {
        /// Wanted values of what differs.
        wanted: String,
        /// Actual values.
        found: String,
    },
}

/// A queue that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Its URL, at brokers whose queues have one.
    pub url: Option<String>,
    /// Whether nothing limits the retries of a failing message (Event `DeliveryLimitInactive`).
    pub delivery_limit_inactive: bool,
}

/// Messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages waiting for delivery.
    pub queued: u64,
    /// Messages delivered and not yet acknowledged.
    pub processing: u64,
}

/// Result of observing a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueObservation {
    pub standing: QueueCheck,
    /// Its messages, if the broker has counted them.
    pub depth: Option<Depth>,
}

/// Result of counting a queue's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The queue does not exist.
    Absent,
    /// The broker has not counted yet.
    Unknown,
    Messages(Depth),
}

/// Result of deleting a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It no longer exists.
    Gone,
    /// It was kept, because it is not the actor's (QUE-34).
    Left(NotOurs),
}

/// Result of deleting a queue if it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// It no longer exists.
    Gone,
    /// It was kept, because it holds messages or has receivers.
    Kept,
    /// It was kept, because it is not the actor's (QUE-34).
    Left(NotOurs),
    /// It looks empty, which can be confirmed only after this time.
    Later(Duration),
}

/// What the controller needs from a broker. Every implementation passes the same contract tests (FW-36).
pub trait QueueClient: Send + Sync {
    /// Returns the queue's state. Changes nothing.
    fn observe<'a>(
        &'a self,
        queue: &'a QueueOf,
    ) -> BoxFuture<'a, Result<QueueObservation, BrokerError>>;

    /// Creates the queue and routes senders to it. Idempotent.
    fn create<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>>;

    /// Brings an existing queue to what is wanted and keeps its messages.
    fn update<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>>;

    /// Deletes the queue of `owner` with its messages. Succeeds if it does not exist.
    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Deleted, BrokerError>>;

    /// Deletes a queue of `owner`, or its dead letter queue, unless it holds messages (QUE-13, QUE-14).
    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Emptied, BrokerError>>;

    /// Observes many queues with as few calls as the broker allows. Results keep their order.
    fn survey<'a>(
        &'a self,
        queues: &'a [QueueOf],
    ) -> BoxFuture<'a, Vec<Result<QueueObservation, BrokerError>>>;

    /// Counts the messages of many queues. Results keep their order.
    fn depths<'a>(&'a self, queues: &'a [String])
    -> BoxFuture<'a, Vec<Result<Count, BrokerError>>>;
}
