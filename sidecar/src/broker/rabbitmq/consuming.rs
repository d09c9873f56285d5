//! The state of one consuming connection.

use std::time::Duration;

use asya_amqp::Connection;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::prefetch::Change;
use super::unacknowledged::{Acknowledgement, Unacknowledged};
use crate::broker::{Receipt, Settlement};

/// From this version on, a quorum queue takes back a delivery that is not settled in time, and cancels its consumer.
/// Earlier versions close the channel.
const CANCELS_LATE: (u16, u16) = (4, 3);
/// Only an older delivery can have exceeded a consumer timeout, which is set in minutes.
pub(super) const MIN_CONSUMER_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Consuming {
    pub(super) connection: u64,
    /// Whether the broker also cancels a consumer that does not settle a delivery in time.
    pub(super) cancels_late: bool,
    pub(super) lost: CancellationToken,
    /// Whether the connection has been reported as in service.
    pub(super) serves: bool,
    pub(super) consumers: Vec<Consumer>,
    /// Number of consumers added so far, which makes consumer tags unique.
    pub(super) added: u64,
    /// The addition or cancellation of a consumer that the broker has not confirmed yet.
    pub(super) changing: Option<Change>,
    /// The broker has cancelled a consumer, so the queue was deleted or moved, unless the lookup finds it.
    pub(super) queue_is_gone: bool,
    /// Resolves to whether the queue still exists.
    pub(super) lookup: Option<AbortOnDropHandle<bool>>,
    pub(super) unacknowledged: Unacknowledged,
    /// Deliveries to requeue once no cancellation is pending: a consumer that is being cancelled would get them again
    /// at once.
    pub(super) returning: Vec<(u64, Settlement)>,
}

pub(super) struct Consumer {
    pub(super) name: String,
    pub(super) prefetch: usize,
}

impl Consuming {
    pub(super) fn new(connection: u64, broker: Option<(u16, u16)>) -> Self {
        Self {
            connection,
            cancels_late: broker.is_some_and(|version| version >= CANCELS_LATE),
            lost: CancellationToken::new(),
            serves: false,
            consumers: Vec::new(),
            added: 0,
            changing: None,
            queue_is_gone: false,
            lookup: None,
            unacknowledged: Unacknowledged::default(),
            returning: Vec::new(),
        }
    }

    /// Whether a delivery may have exceeded its consumer timeout. If not, the queue is not looked up: one that was
    /// deleted and recreated exists, too, but does not redeliver the messages in flight.
    pub(super) fn may_be_late(&self) -> bool {
        let age = self.unacknowledged.age();
        self.cancels_late && age.is_some_and(|age| age >= MIN_CONSUMER_TIMEOUT)
    }

    /// Whether the queue has been deleted, so that messages in flight are not redelivered.
    pub(super) fn is_not_redelivered(&self) -> bool {
        self.queue_is_gone && self.lookup.is_none()
    }

    /// Whether, in addition, nothing more will be delivered. If the lookup got no answer, the broker may have cancelled
    /// only one of several consumers.
    pub(super) fn may_reconnect(&self) -> bool {
        let is_idle = || self.unacknowledged.unsettled().next().is_none();
        self.is_not_redelivered() && (self.consumers.is_empty() || is_idle())
    }

    /// Number of unsettled deliveries of cancelled consumers, except those to requeue.
    pub(super) fn draining(&self) -> usize {
        let is_active =
            |name: &String| self.consumers.iter().any(|consumer| consumer.name == *name);
        let is_returning = |tag: u64| self.returning.iter().any(|(number, _)| *number == tag);
        self.unacknowledged
            .unsettled()
            .filter(|(tag, name)| !is_active(name) && !is_returning(*tag))
            .count()
    }

    pub(super) fn settle(
        &mut self,
        connection: &Connection,
        receipt: &Receipt,
        settlement: Settlement,
    ) {
        if receipt.connection != self.connection {
            return;
        }
        if settlement.is_requeue() {
            // It stays unsettled until it is requeued, so that no acknowledgement of later deliveries includes it.
            self.returning.push((receipt.number, settlement));
            return;
        }
        let acknowledged = matches!(settlement, Settlement::Acknowledge);
        if self.unacknowledged.settle(receipt.number, acknowledged) && !acknowledged {
            connection.reject(receipt.number, false);
        }
    }

    /// Drops a delivery that is settled on a lost connection.
    pub(super) fn forget(&mut self, receipt: &Receipt) {
        if receipt.connection == self.connection {
            self.unacknowledged.settle(receipt.number, false);
        }
    }

    /// Requeues the deliveries in `returning`.
    pub(super) fn return_all(&mut self, connection: &Connection) {
        for (number, settlement) in std::mem::take(&mut self.returning) {
            if !self.unacknowledged.settle(number, false) {
                continue;
            }
            if settlement == Settlement::RequeueFailed {
                connection.reject(number, true);
            } else {
                connection.requeue(number);
            }
        }
    }

    /// Sends the pending acknowledgements.
    pub(super) fn acknowledge(&mut self, connection: &Connection) {
        for acknowledgement in self.unacknowledged.take_acknowledgements() {
            match acknowledgement {
                Acknowledgement::One(tag) => connection.acknowledge(tag, false),
                Acknowledgement::UpTo(tag) => connection.acknowledge(tag, true),
            }
        }
    }

    /// The total prefetch of all consumers.
    pub(super) fn prefetch(&self) -> usize {
        self.consumers
            .iter()
            .map(|consumer| consumer.prefetch)
            .sum()
    }
}
