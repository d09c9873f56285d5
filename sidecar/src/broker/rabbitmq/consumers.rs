//! The connection for consuming and acknowledging.

use std::time::Duration;

use asya_amqp::{CONSUMER_TIMEOUT, Connection, Purpose};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::connect::{Connector, name};
use super::counting::Counting;
use super::near_delivery_limit::NearDeliveryLimit;
use super::prefetch::{Change, change};
use super::unacknowledged::{Acknowledgement, Unacknowledged};
use crate::broker::{Delivery, Demand, Event, Origin, Receipt, Settlement};
use crate::decide::Deliveries;
use crate::metrics::BrokerMetrics;

/// Consumes until the process exits.
pub(super) struct Session {
    pub(super) connector: Connector,
    pub(super) queue: String,
    pub(super) near_limit: NearDeliveryLimit,
    pub(super) counting: Counting,
    pub(super) timeout: ConsumerTimeout,
    pub(super) demand: watch::Receiver<Demand>,
    pub(super) settlements: mpsc::UnboundedReceiver<(Receipt, Settlement)>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) metrics: BrokerMetrics,
}

/// Consumer timeout, where the broker's default is too short (SC-32).
pub(super) struct ConsumerTimeout {
    needed: Option<Duration>,
    /// The queue refused the argument: since RabbitMQ 4.3, classic queues have no consumer timeout.
    refused: bool,
}

impl ConsumerTimeout {
    pub(super) fn new(needed: Option<Duration>) -> Self {
        Self {
            needed,
            refused: false,
        }
    }

    fn argument(&self) -> Option<Duration> {
        self.needed.filter(|_| !self.refused)
    }

    /// Leaves the argument out from now on if it is the reason why the channel was closed.
    fn channel_closed(&mut self, text: &str) {
        self.refused |= self.needed.is_some() && text.contains(CONSUMER_TIMEOUT);
    }
}

/// State of one connection.
struct Consuming {
    connection: u64,
    lost: CancellationToken,
    consumers: Vec<Consumer>,
    /// Number of consumers added so far; makes consumer tags unique.
    added: u64,
    /// The addition or cancellation of a consumer that the broker has not confirmed yet.
    changing: Option<Change>,
    /// The broker has cancelled a consumer because the queue was deleted or moved.
    queue_is_gone: bool,
    unacknowledged: Unacknowledged,
    /// Deliveries to return once no consumer is to be cancelled: the broker would deliver them to it again, at once.
    returning: Vec<(u64, Settlement)>,
}

struct Consumer {
    name: String,
    prefetch: usize,
}

/// An input of an open connection.
enum ConsumeStep {
    Event(asya_amqp::Event),
    Settle(Receipt, Settlement),
    DemandChanged,
    AcknowledgementsDue,
    Closing,
}

impl Session {
    pub(super) async fn run(mut self) {
        let mut number = 0;
        while let Some(connection) = self.connector.connection(Purpose::Consume).await {
            number += 1;
            let mut consuming = Consuming::new(number);
            self.emit(Event::Connected);
            self.metrics.set_connected(name(Purpose::Consume), true);
            let why = self.serve(connection, &mut consuming).await;
            consuming.lost.cancel();
            self.near_limit.clear();
            self.counting.clear();
            self.metrics.set_connected(name(Purpose::Consume), false);
            self.emit(Event::Disconnected);
            let Some(why) = why else { return };
            self.connector.log_once(Purpose::Consume, &why);
        }
    }

    /// Serves the connection until it is lost, and returns the reason; `None` after a graceful close.
    async fn serve(
        &mut self,
        mut connection: Connection,
        consuming: &mut Consuming,
    ) -> Option<String> {
        loop {
            self.adjust(&connection, consuming);
            if consuming.queue_is_gone && !consuming.unacknowledged.has_unsettled() {
                consuming.acknowledge(&connection);
                return Some(self.queue_is_gone());
            }
            match self.next(&mut connection, consuming).await {
                ConsumeStep::Event(event) => {
                    if let Err(why) = self.take(event, consuming) {
                        return Some(why);
                    }
                }
                ConsumeStep::Settle(receipt, settlement) => {
                    consuming.settle(&connection, &receipt, settlement);
                    while let Ok((receipt, settlement)) = self.settlements.try_recv() {
                        consuming.settle(&connection, &receipt, settlement);
                    }
                    if consuming.unacknowledged.is_batch_due(consuming.prefetch()) {
                        consuming.acknowledge(&connection);
                    }
                }
                ConsumeStep::AcknowledgementsDue => consuming.acknowledge(&connection),
                ConsumeStep::DemandChanged => {}
                ConsumeStep::Closing => {
                    self.close(connection, consuming).await;
                    return None;
                }
            }
        }
    }

    async fn next(&mut self, connection: &mut Connection, consuming: &Consuming) -> ConsumeStep {
        let due = consuming.unacknowledged.deadline();
        let due = async {
            sleep_until(due?).await;
            Some(())
        };
        tokio::select! {
            biased;
            Some((receipt, settlement)) = self.settlements.recv() => ConsumeStep::Settle(receipt, settlement),
            Ok(()) = self.demand.changed() => ConsumeStep::DemandChanged,
            event = connection.event() => ConsumeStep::Event(event),
            Some(()) = due => ConsumeStep::AcknowledgementsDue,
            () = self.connector.closing() => ConsumeStep::Closing,
        }
    }

    /// Adds or cancels a consumer if the total prefetch differs from the demand, and returns what is to be returned
    /// unless a cancellation comes first.
    fn adjust(&self, connection: &Connection, consuming: &mut Consuming) {
        if consuming.queue_is_gone {
            consuming.return_all(connection);
            return;
        }
        let wanted = self.demand.borrow().in_flight();
        let prefetches: Vec<usize> = consuming
            .consumers
            .iter()
            .map(|consumer| consumer.prefetch)
            .collect();
        let change = change(wanted, consuming.draining(), &prefetches);
        if change != Change::CancelLast && consuming.changing != Some(Change::CancelLast) {
            consuming.return_all(connection);
        }
        if consuming.changing.is_some() {
            return;
        }
        match change {
            Change::None => {}
            Change::Add(prefetch) => {
                consuming.added += 1;
                let name = format!("asya-{}", consuming.added);
                let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
                connection.consume(&self.queue, &name, prefetch, self.timeout.argument());
                consuming.consumers.push(Consumer {
                    name,
                    prefetch: prefetch.into(),
                });
                consuming.changing = Some(change);
            }
            Change::CancelLast => {
                if let Some(last) = consuming.consumers.pop() {
                    connection.cancel(&last.name);
                    consuming.changing = Some(change);
                }
            }
        }
    }

    fn take(&mut self, event: asya_amqp::Event, consuming: &mut Consuming) -> Result<(), String> {
        match event {
            asya_amqp::Event::Delivered {
                consumer,
                tag,
                redelivered,
                count,
                body,
            } => {
                consuming.unacknowledged.delivered(tag, consumer);
                let receipt = Receipt::new(consuming.connection, tag, consuming.lost.clone());
                let deliveries = deliveries(redelivered, count);
                self.counting.delivered(deliveries);
                self.near_limit.delivered(&receipt, count, &body);
                self.emit(Event::Delivered(Delivery {
                    receipt,
                    body,
                    deliveries,
                    origin: Origin::default(),
                }));
            }
            asya_amqp::Event::Consuming(_) | asya_amqp::Event::Cancelled(_) => {
                consuming.changing = None;
            }
            asya_amqp::Event::CancelledByBroker(name) => {
                consuming.consumers.retain(|consumer| consumer.name != name);
                consuming.changing = None;
                // Messages of a deleted queue are not redelivered, so finish those in flight first (SC-21).
                consuming.queue_is_gone = true;
                // The next queue of this name may have another type.
                self.timeout.refused = false;
                let why = self.queue_is_gone();
                self.connector.log_once(Purpose::Consume, &why);
                self.emit(Event::Disconnected);
            }
            asya_amqp::Event::ChannelClosed { code, text } => {
                self.timeout.channel_closed(&text);
                return Err(format!(
                    "cannot consume queue {}: {code} {text}",
                    self.queue
                ));
            }
            asya_amqp::Event::Lost(why) => return Err(why),
            _ => {}
        }
        Ok(())
    }

    fn queue_is_gone(&self) -> String {
        format!("queue {} was deleted or moved", self.queue)
    }

    /// Sends pending settlements, then closes the connection gracefully (SC-33).
    async fn close(&mut self, connection: Connection, consuming: &mut Consuming) {
        while let Ok((receipt, settlement)) = self.settlements.try_recv() {
            consuming.settle(&connection, &receipt, settlement);
        }
        for consumer in consuming.consumers.drain(..) {
            connection.cancel(&consumer.name);
        }
        consuming.return_all(&connection);
        consuming.acknowledge(&connection);
        connection.close().await;
    }

    fn emit(&self, event: Event) {
        // The receiver is gone during shutdown.
        let _ = self.events.send(event);
    }
}

impl Consuming {
    fn new(connection: u64) -> Self {
        Self {
            connection,
            lost: CancellationToken::new(),
            consumers: Vec::new(),
            added: 0,
            changing: None,
            queue_is_gone: false,
            unacknowledged: Unacknowledged::default(),
            returning: Vec::new(),
        }
    }

    /// Number of unsettled deliveries of cancelled consumers, without those to return.
    fn draining(&self) -> usize {
        let is_active =
            |name: &String| self.consumers.iter().any(|consumer| consumer.name == *name);
        let is_returning = |tag: u64| self.returning.iter().any(|(number, _)| *number == tag);
        self.unacknowledged
            .unsettled()
            .filter(|(tag, name)| !is_active(name) && !is_returning(*tag))
            .count()
    }

    fn settle(&mut self, connection: &Connection, receipt: &Receipt, settlement: Settlement) {
        if receipt.connection != self.connection {
            return;
        }
        if settlement.is_requeue() {
            // It stays unsettled until then, so that no acknowledgement of later deliveries includes it.
            self.returning.push((receipt.number, settlement));
            return;
        }
        let acknowledged = matches!(settlement, Settlement::Acknowledge);
        if self.unacknowledged.settle(receipt.number, acknowledged) && !acknowledged {
            connection.reject(receipt.number, false);
        }
    }

    /// Returns the deliveries that wait for it.
    fn return_all(&mut self, connection: &Connection) {
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

    /// Sends the acknowledgements that wait.
    fn acknowledge(&mut self, connection: &Connection) {
        for acknowledgement in self.unacknowledged.take_acknowledgements() {
            match acknowledgement {
                Acknowledgement::One(tag) => connection.acknowledge(tag, false),
                Acknowledgement::UpTo(tag) => connection.acknowledge(tag, true),
            }
        }
    }

    /// Of all consumers together.
    fn prefetch(&self) -> usize {
        self.consumers
            .iter()
            .map(|consumer| consumer.prefetch)
            .sum()
    }
}

/// Quorum queues count deliveries, since RabbitMQ 4.3 only failed ones; classic queues only set the `redelivered` flag
/// (SC-34).
fn deliveries(redelivered: bool, count: Option<u64>) -> Deliveries {
    match count {
        None if redelivered => Deliveries::Redelivered,
        None | Some(0) => Deliveries::First,
        Some(count) => Deliveries::Before(u32::try_from(count).unwrap_or(u32::MAX)),
    }
}

#[cfg(test)]
mod tests;
