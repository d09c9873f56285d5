//! Queues at the brokers: one client per transport and credential, behind one trait.

mod brokers;
mod circuit;
mod cluster;
mod credentials;
pub mod depths;
mod error;
mod gate;
pub mod health;
pub mod looks;
mod pool;
mod rabbitmq;
mod session;
mod sqs;
mod zeros;

pub mod claims;
#[cfg(test)]
mod tests;

use std::time::Duration;

use asya_shared::transport::QueueOf;
use asya_shared::transport::mark::NotOurs;
use asya_shared::transport::sqs::Owner;
use futures::future::BoxFuture;

pub use brokers::Brokers;
pub use error::BrokerError;

/// How an actor's queue stands at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none of that name.
    Absent,
    /// It is there and serves.
    Serves(Serving),
    /// It is there and serves, and says only after [`QueueClient::update`] that it is this actor's (QUE-35).
    Unmarked,
    /// It is there, and [`QueueClient::update`] brings it to what is wanted, with its messages.
    Drifted,
    /// It is there, does not serve, and cannot be changed without losing messages (QUE-6).
    Differs {
        /// What is wanted, of what differs.
        wanted: String,
        /// What is there instead.
        found: String,
    },
}

/// A queue that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// Its address, where queues have one.
    pub url: Option<String>,
    /// Nothing ends the retries of a failing message (Event `DeliveryLimitInactive`).
    pub delivery_limit_inactive: bool,
}

/// Messages in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Those that wait.
    pub queued: u64,
    /// Those in work.
    pub processing: u64,
}

/// What one look at a queue shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How it stands.
    pub standing: Standing,
    /// Its messages, if the broker has counted them.
    pub depth: Option<Depth>,
}

/// What a count of a queue's messages shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// There is no such queue.
    Absent,
    /// The broker has not counted yet.
    Unknown,
    /// So many.
    Messages(Depth),
}

/// What became of a queue that was to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// It stays, because it is not the actor's (QUE-34).
    Left(NotOurs),
}

/// What became of a queue that was to be deleted if it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// It is gone.
    Gone,
    /// It holds messages or has receivers.
    Kept,
    /// It stays, because it is not the actor's (QUE-34).
    Left(NotOurs),
    /// It looks empty; whether it is shows only after this time.
    Later(Duration),
}

/// What the controller asks of a broker. Every broker passes the same contract tests (FW-36).
pub trait QueueClient: Send + Sync {
    /// How the queue stands. Changes nothing.
    fn observe<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Seen, BrokerError>>;

    /// Creates the queue, and lets senders reach it. Repeating it changes nothing.
    fn create<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>>;

    /// Brings an existing queue to what is wanted. Its messages survive.
    fn update<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>>;

    /// Deletes the queue of `owner` with its messages. One that does not exist is a success.
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

    /// Looks at many queues, with as few calls as the broker allows; the answers are in their order.
    fn survey<'a>(&'a self, queues: &'a [QueueOf])
    -> BoxFuture<'a, Vec<Result<Seen, BrokerError>>>;

    /// The messages of many queues; the answers are in their order.
    fn depths<'a>(&'a self, queues: &'a [String])
    -> BoxFuture<'a, Vec<Result<Count, BrokerError>>>;
}
