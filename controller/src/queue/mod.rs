//! Queues at the brokers: one client per transport and credential, behind one trait.

mod credentials;
mod error;
mod pool;
mod rabbitmq;

use asya_shared::transport::QueueNames;
use futures::future::BoxFuture;

pub use error::BrokerError;
pub use pool::Brokers;

/// How an actor's queue stands at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none of that name.
    Absent,
    /// It is there and serves.
    Serves,
    /// It is there, does not serve, and cannot be changed without losing messages (QUE-6).
    Differs {
        /// What is wanted, of what differs.
        wanted: String,
        /// What is there instead.
        found: String,
    },
}

/// What the controller asks of a broker. Every broker passes the same contract tests (FW-36).
pub trait QueueClient: Send + Sync {
    /// How the queue stands. Changes nothing.
    fn observe<'a>(&'a self, names: &'a QueueNames)
    -> BoxFuture<'a, Result<Standing, BrokerError>>;

    /// Creates the queue.
    fn create<'a>(&'a self, names: &'a QueueNames) -> BoxFuture<'a, Result<(), BrokerError>>;

    /// Lets senders reach the queue. Repeating it changes nothing.
    fn route<'a>(&'a self, names: &'a QueueNames) -> BoxFuture<'a, Result<(), BrokerError>>;

    /// Deletes the queue with its messages. One that does not exist is a success.
    fn delete<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), BrokerError>>;
}
