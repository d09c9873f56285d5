//! Queues at the brokers: one client per transport and credential, behind one trait.

mod brokers;
mod ca_bundle;
mod call_failure;
mod circuit;
mod cluster;
mod credential_reloading_client;
mod credentials;
pub mod deletion_fault;
pub mod depths;
mod empty_confirmations;
mod error;
pub mod health;
pub mod http_client;
pub(crate) mod limiter;
mod pool;
pub mod queue_claims;
mod queue_id;
mod rabbitmq;
pub mod rechecks;
pub mod retired_queue_schedule;
mod sqs;
pub mod unrecorded_queues;

#[cfg(test)]
mod tests;

use std::time::Duration;

use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::{DeletionRefusal, QueueOwner};
use asya_shared::transport::rabbitmq::KeptSetting;
use futures::future::BoxFuture;
use tokio::time::Instant;

pub use brokers::Brokers;
pub use call_failure::CallFailure;
pub use error::BrokerError;
pub use queue_id::{QueueId, QueueIdMatch, RabbitmqQueueId};

/// State of an actor's queue at the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueCheck {
    /// It does not exist.
    NotFound,
    /// It exists and is usable.
    Ready(ReadyQueue),
    /// It exists and is usable, but [`QueueClient::update`] still has to add this actor's owner tag (QUE-35).
    NotTaggedYet,
    /// It exists, and [`QueueClient::update`] brings it to the desired state without losing messages.
    Drifted,
    /// It exists, is not usable, and cannot be changed without losing messages (QUE-6).
    Mismatch {
        /// Desired values of the fields that differ.
        desired: String,
        /// Actual values.
        found: String,
    },
}

/// A usable queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyQueue {
    /// Its URL, if the broker's queues have one.
    pub url: Option<String>,
    /// Whether nothing limits the retries of a failing message (Event `DeliveryLimitInactive`).
    pub delivery_limit_inactive: bool,
    /// Settings of the transport that the queue and its dead letter queue keep from an earlier configuration (Event
    /// `QueueSettingsKept`).
    pub kept_settings: Vec<KeptSetting>,
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
    pub check: QueueCheck,
    /// Its messages, if the broker has counted them.
    pub depth: Option<Depth>,
}

/// Result of counting a queue's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The queue does not exist.
    NotFound,
    /// The broker has not counted yet.
    Unknown,
    Messages(Depth),
}

/// Result of deleting a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It no longer exists.
    Deleted,
    /// It was kept, because it is not the actor's (QUE-34).
    NotOwned(DeletionRefusal),
}

/// Result of deleting a queue if it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteIfEmptyOutcome {
    /// It no longer exists.
    Deleted,
    /// It was kept, because it holds messages or has consumers.
    InUse,
    /// It was kept, because it is not the actor's (QUE-34).
    NotOwned(DeletionRefusal),
    /// It appears empty, which can be confirmed only after this time.
    Recheck(Duration),
}

/// What to do with an empty queue that has no owner tag at the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untagged {
    Keep,
    /// Delete it: its creation may have been interrupted before it was tagged (QUE-13). It is not tagged first, because
    /// it may be someone else's, and be used again before it is deleted.
    Delete,
}

impl Untagged {
    /// Whether the queue may be deleted despite `refusal`.
    fn permits(self, refusal: &DeletionRefusal) -> bool {
        self == Self::Delete && *refusal == DeletionRefusal::NoOwnerTag
    }
}

/// The response to a call.
pub type BrokerResponse<'a, T> = BoxFuture<'a, Result<T, BrokerError>>;

/// The responses about several queues, in their order.
pub type BrokerResponses<'a, T> = BoxFuture<'a, Vec<Result<T, BrokerError>>>;

/// Confirms what the deletion of a queue relies on, such as that its actor no longer uses it (QUE-30).
///
/// Called after all other checks and immediately before the deletion, because that cannot be undone.
pub trait DeletionGuard: Send + Sync {
    /// Returns the deadline for deleting the queue.
    ///
    /// # Errors
    /// `Unconfirmed`.
    fn confirm(&self) -> BrokerResponse<'_, Instant>;
}

/// The controller's interface to a broker. Every implementation passes the same contract tests (FW-36).
pub trait QueueClient: Send + Sync {
    /// Returns the queue's state. Changes nothing.
    fn observe<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, QueueObservation>;

    /// Creates the queue and routes messages to it. Idempotent.
    fn create<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue>;

    /// Brings an existing queue to the desired state without losing messages.
    fn update<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue>;

    /// Deletes the queue of `owner` with its messages. Succeeds if it does not exist.
    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteOutcome>;

    /// Deletes a queue of `owner`, or its dead letter queue, unless it holds messages (QUE-13, QUE-14). Where counts
    /// lag, it takes two calls for the same `generation` of the actor: an earlier one may have used the queue since.
    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        untagged: Untagged,
        generation: i64,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteIfEmptyOutcome>;

    /// Identifies a queue regardless of the transport by which it is reached; `None` if it does not exist or the broker
    /// has no such id (QUE-36).
    fn id<'a>(&'a self, queue: &'a str) -> BrokerResponse<'a, Option<QueueId>>;

    /// Observes many queues with as few calls as the broker allows. Results keep their order.
    fn observe_many<'a>(
        &'a self,
        queues: &'a [ActorQueue],
    ) -> BrokerResponses<'a, QueueObservation>;

    /// Counts the messages of many queues. Results keep their order.
    fn depths<'a>(&'a self, queues: &'a [String]) -> BrokerResponses<'a, Count>;
}
