//! The broker interface: deliveries, publications and settlements.

pub mod backoff;
mod demand;
#[cfg(test)]
pub mod memory;
pub mod rabbitmq;
pub mod sqs;

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::demand::{Demand, MAX_STALLED, MAX_STALLED_SIZE};
use crate::decide::Deliveries;

/// A message broker. Implementations reconnect indefinitely and report [`Event`]s through a channel.
pub trait Broker: Clone + Send + Sync + 'static {
    /// Sets how many messages to keep in flight.
    fn demand(&self, demand: Demand);

    /// Publishes a message. It is queued for sending, in order, before this returns; the future resolves once the
    /// broker has confirmed it, across any number of reconnects.
    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static;

    /// Called before a delivery is first processed. Returns whether this process still owns it; if not, the broker
    /// redelivers it and it needs no settlement.
    fn begin(&self, receipt: &Receipt) -> bool {
        !receipt.is_lost()
    }

    /// Settles a delivery.
    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Returns a delivery whose results could not be stored, because their destination is missing. If nothing else
    /// would keep the queue from delivering it again before all others, it goes to the end of the queue (SC-26).
    fn defer(&self, delivery: &Delivery) -> impl Future<Output = ()> + Send + 'static {
        self.settle(&delivery.receipt, Settlement::RequeueFailed)
    }

    /// How long to hold a failed message before it is requeued, so that redelivery cannot become a hot loop (SC-77).
    fn requeue_delay(&self) -> Duration;

    /// Closes all connections gracefully (SC-33).
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// An event reported by a broker.
#[derive(Debug)]
pub enum Event {
    /// The consumer is connected.
    Connected,
    /// The connection is lost, and its unsettled deliveries with it: their receipts report [`Receipt::is_lost`].
    Disconnected,
    /// A message was delivered.
    Delivered(Delivery),
    /// A message that was not settled is to be processed again (SC-34).
    Kept(Delivery),
    /// Whether the broker has blocked publishing, for example because of a resource alarm (SC-29).
    Blocked(bool),
}

/// A delivered message.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Identifies the delivery for settlement.
    pub receipt: Receipt,
    /// The message body, or its beginning if the message is larger than this process accepts.
    pub body: Bytes,
    /// The size of the whole message, in bytes.
    pub size: usize,
    /// How often it was delivered before.
    pub deliveries: Deliveries,
    /// Properties that resulting publications inherit.
    pub origin: Origin,
    /// When it was delivered.
    pub since: Instant,
}

impl Delivery {
    /// Whether `body` is the whole message, so that it can be published again.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.body.len() == self.size
    }
}

/// Properties that publications inherit from their source delivery: deduplication and ordering on FIFO queues (SC-41).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The broker's message id.
    pub message: Option<String>,
    /// The message group, within which order is kept.
    pub group: Option<String>,
}

/// Handle for settling a delivery.
#[derive(Clone, Debug)]
pub struct Receipt {
    connection: u64,
    number: u64,
    lost: CancellationToken,
}

impl Receipt {
    /// `number`: of the delivery, on this connection. `lost`: cancelled when the connection is lost.
    #[must_use]
    pub fn new(connection: u64, number: u64, lost: CancellationToken) -> Self {
        Self {
            connection,
            number,
            lost,
        }
    }

    /// Identifies the delivery within this process.
    fn key(&self) -> (u64, u64) {
        (self.connection, self.number)
    }

    /// Whether the delivery's connection is lost, so that the broker redelivers the message in any case.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Resolves when the delivery's connection is lost.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

/// How to settle a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Remove it from the queue.
    Acknowledge,
    /// Return it to the queue because processing it failed, with the broker's redelivery delay if it supports one.
    RequeueFailed,
    /// Return it to the queue unprocessed, with the broker's redelivery delay if it supports one.
    Requeue,
    /// Return it to the queue unprocessed and without delay.
    RequeueNow,
    /// Dead-letter it, where the broker supports that.
    Reject,
}

impl Settlement {
    /// Whether the broker will redeliver the message.
    #[must_use]
    pub fn is_requeue(self) -> bool {
        matches!(self, Self::RequeueFailed | Self::Requeue | Self::RequeueNow)
    }
}

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Publication {
    pub queue: String,
    pub id: String,
    pub body: Bytes,
    /// Properties inherited from the source delivery.
    pub origin: Origin,
    /// Position among the publications of the same source delivery.
    pub index: usize,
}

/// Why a publication was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It could not be routed to any queue.
    #[error("unroutable: the queue does not exist or is not bound")]
    NoQueue,
    /// Negatively acknowledged, for example because the queue is full; a retry may succeed.
    #[error("negatively acknowledged by the broker")]
    Nacked,
    /// The body exceeds the broker's size limit.
    #[error("message too large")]
    TooLarge,
    /// Not permitted by the broker.
    #[error("forbidden by the broker: {0}")]
    Forbidden(String),
    /// This process is closing the connection.
    #[error("the connection is being closed")]
    Closing,
}
