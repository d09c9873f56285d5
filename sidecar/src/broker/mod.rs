//! What a broker does for the sidecar: it delivers, stores and settles messages.

#[cfg(test)]
pub mod memory;
pub mod pause;
pub mod rabbitmq;
pub mod sqs;

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::decide::Deliveries;

/// A broker. Implementations reconnect by themselves, for ever, and tell [`Event`]s through a channel.
pub trait Broker: Clone + Send + Sync + 'static {
    /// How many messages are wanted here.
    fn demand(&self, demand: Demand);

    /// Publishes a message. It is on its way when this returns, before messages that are published later; the future ends
    /// when the broker has stored it, however often the connection is lost meanwhile.
    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static;

    /// Settles a delivery.
    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// How long a message that failed is kept before it is given back, so that it does not come again at once (SC-77).
    fn pause_before_giving_back(&self) -> Duration;

    /// Closes all connections in order (SC-33).
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// How many messages are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// How many can be worked on; 0: none are wanted.
    pub slots: usize,
    /// How many may wait beside them.
    pub lookahead: usize,
}

impl Demand {
    /// The most that may be in flight.
    #[must_use]
    pub fn in_flight(self) -> usize {
        if self.slots == 0 {
            0
        } else {
            self.slots + self.lookahead
        }
    }
}

/// What a broker tells.
#[derive(Debug)]
pub enum Event {
    /// Messages are being consumed, or could be.
    Connected,
    /// The connection is lost, and with it what was delivered, as each receipt says.
    Disconnected,
    /// A message.
    Delivered(Delivery),
    /// Whether the broker has stopped to take publications for now (SC-29).
    Blocked(bool),
}

/// A message that came.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// By which it is settled.
    pub receipt: Receipt,
    /// The message.
    pub body: Bytes,
    /// How often it came before.
    pub deliveries: Deliveries,
    /// What publications that come of it take over.
    pub origin: Origin,
}

/// What publications take over from the delivery that they come of: names and order at FIFO queues (SC-41).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The broker's own id of the message.
    pub message: Option<String>,
    /// The group that keeps its order.
    pub group: Option<String>,
}

/// By which a delivery is settled.
#[derive(Clone, Debug)]
pub struct Receipt {
    generation: u64,
    number: u64,
    lost: CancellationToken,
}

impl Receipt {
    fn new(generation: u64, number: u64, lost: CancellationToken) -> Self {
        Self {
            generation,
            number,
            lost,
        }
    }

    /// Whether the message is known to come again, whatever is done here.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Ends when the message is known to come again.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is done.
    Acknowledge,
    /// It comes again after the broker's own pause, if it has one.
    GiveBack,
    /// It comes again at once.
    GiveBackNow,
    /// It goes to the dead letter queue, where the broker can do that.
    Reject,
}

/// A message to store.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The queue's name.
    pub queue: String,
    /// The message's id.
    pub id: String,
    /// The message.
    pub body: Bytes,
    /// The delivery that it comes of.
    pub origin: Origin,
    /// Which of the messages that come of that delivery it is.
    pub index: usize,
}

/// Why a publication was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No queue has it.
    #[error("there is no such queue, or none is bound")]
    NoQueue,
    /// The queue did not take it now: it is full, or its broker is in trouble.
    #[error("the queue does not take it")]
    NotNow,
    /// It is too large.
    #[error("it is too large")]
    TooLarge,
    /// The broker does not allow it.
    #[error("the broker refuses it: {0}")]
    Forbidden(String),
    /// This process closes its connections.
    #[error("the connection is being closed")]
    Closing,
}
