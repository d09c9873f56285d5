//! The connection for consuming and acknowledging.

use std::time::Duration;

use asya_amqp::{CONSUMER_TIMEOUT, Connection, Purpose};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::connect::{Connector, name};
use super::consuming::{Consumer, Consuming};
use super::counting::Counting;
use super::detached::Detached;
use super::near_delivery_limit::NearDeliveryLimit;
use super::prefetch::{Change, change};
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
    /// Connections to deleted queues that still have messages in flight.
    pub(super) detached: Vec<Detached>,
}

/// Why a connection is no longer served.
enum End {
    /// It is lost, for this reason.
    Lost(String),
    /// The broker has cancelled all its consumers because the queue was deleted or moved.
    QueueIsGone(Connection),
    /// Closed gracefully.
    Closed,
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

    /// Stops sending the argument if it is the reason why the channel was closed.
    fn channel_closed(&mut self, text: &str) {
        self.refused |= self.needed.is_some() && text.contains(CONSUMER_TIMEOUT);
    }
}

/// How long to look for the queue after the broker has cancelled a consumer.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// An input of an open connection.
enum ConsumeStep {
    Event(asya_amqp::Event),
    Settle(Receipt, Settlement),
    DemandChanged,
    AcknowledgementsDue,
    QueueExists(bool),
    Closing,
}

impl Session {
    pub(super) async fn run(mut self) {
        let mut number = 0;
        while let Some(connection) = self.connector.connection(Purpose::Consume).await {
            number += 1;
            let mut consuming = Consuming::new(number, connection.broker_version());
            let end = self.serve(connection, &mut consuming).await;
            let (connection, why) = match end {
                End::Lost(why) => (None, Some(why)),
                End::QueueIsGone(connection) => (Some(connection), Some(self.queue_is_gone())),
                End::Closed => (None, None),
            };
            if why.is_some() && consuming.is_not_redelivered() {
                self.detach(Detached::new(connection, consuming));
            } else {
                consuming.lost.cancel();
                self.near_limit.clear(number);
            }
            self.counting.clear();
            self.metrics.set_connected(name(Purpose::Consume), false);
            self.emit(Event::Disconnected);
            let Some(why) = why else { break };
            self.connector.log_once(Purpose::Consume, &why);
        }
        while let Ok((receipt, settlement)) = self.settlements.try_recv() {
            self.settle_detached(&receipt, settlement);
        }
        for detached in self.detached.drain(..) {
            detached.close().await;
        }
    }

    /// Keeps a connection open for its messages in flight. Without any, it is closed: the broker may have cancelled
    /// only one of its consumers, and nobody would take what it delivers to another.
    fn detach(&mut self, detached: Detached) {
        if detached.unsettled() == 0 {
            tokio::spawn(detached.close());
        } else {
            self.detached.push(detached);
        }
    }

    /// Serves the connection until it ends, or nothing more can be delivered on it.
    async fn serve(&mut self, mut connection: Connection, consuming: &mut Consuming) -> End {
        loop {
            self.adjust(&connection, consuming);
            self.announce(consuming);
            if consuming.may_reconnect() {
                consuming.acknowledge(&connection);
                return End::QueueIsGone(connection);
            }
            match self.next(&mut connection, consuming).await {
                ConsumeStep::Event(event) => {
                    if let Err(why) = self.take(event, consuming) {
                        return End::Lost(why);
                    }
                }
                ConsumeStep::Settle(receipt, settlement) => {
                    self.settle(&connection, consuming, &receipt, settlement);
                    while let Ok((receipt, settlement)) = self.settlements.try_recv() {
                        self.settle(&connection, consuming, &receipt, settlement);
                    }
                    if consuming.unacknowledged.is_batch_due(consuming.prefetch()) {
                        consuming.acknowledge(&connection);
                    }
                }
                ConsumeStep::AcknowledgementsDue => consuming.acknowledge(&connection),
                ConsumeStep::DemandChanged => {}
                ConsumeStep::QueueExists(false) => {
                    consuming.lookup = None;
                    self.log_queue_is_gone();
                }
                ConsumeStep::QueueExists(true) => {
                    // The broker has taken the deliveries back and will redeliver them, so no result of them may be
                    // sent (SC-74).
                    consuming.lost.cancel();
                    self.close(connection, consuming).await;
                    return End::Lost(self.delivery_timed_out());
                }
                ConsumeStep::Closing => {
                    self.close(connection, consuming).await;
                    return End::Closed;
                }
            }
        }
    }

    /// Reports the connection as in service, once it consumes or has no reason to. Before that, the broker may still
    /// close the channel, for example because the queue does not exist.
    fn announce(&mut self, consuming: &mut Consuming) {
        let is_settled = consuming.changing.is_none() && !consuming.queue_is_gone;
        if is_settled && !std::mem::replace(&mut consuming.serves, true) {
            self.connector.log_service(Purpose::Consume);
            self.metrics.set_connected(name(Purpose::Consume), true);
            self.emit(Event::Connected);
        }
    }

    async fn next(
        &mut self,
        connection: &mut Connection,
        consuming: &mut Consuming,
    ) -> ConsumeStep {
        let due = consuming.unacknowledged.deadline();
        let due = async {
            sleep_until(due?).await;
            Some(())
        };
        tokio::select! {
            biased;
            // First, or the broker would deliver another message in place of one that is no longer compensated for
            // (SC-31).
            Ok(()) = self.demand.changed() => ConsumeStep::DemandChanged,
            Some((receipt, settlement)) = self.settlements.recv() => ConsumeStep::Settle(receipt, settlement),
            event = connection.event() => ConsumeStep::Event(event),
            Some(()) = due => ConsumeStep::AcknowledgementsDue,
            Some(exists) = looked_up(&mut consuming.lookup) => ConsumeStep::QueueExists(exists),
            () = self.connector.closing() => ConsumeStep::Closing,
        }
    }

    /// Adds or cancels a consumer if the total prefetch differs from the demand. Requeues the deliveries that wait for
    /// a cancellation, unless one is pending.
    fn adjust(&self, connection: &Connection, consuming: &mut Consuming) {
        if consuming.queue_is_gone {
            consuming.return_all(connection);
            return;
        }
        let wanted = self.wanted();
        let prefetches: Vec<usize> = consuming
            .consumers
            .iter()
            .map(|consumer| consumer.prefetch)
            .collect();
        let detached: usize = self.detached.iter().map(Detached::unsettled).sum();
        let change = change(wanted, consuming.draining() + detached, &prefetches);
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

    /// How many messages may be in flight.
    fn wanted(&self) -> usize {
        match self.demand.borrow().in_flight() {
            0 => 0,
            wanted => wanted + self.near_limit.made_up_for(),
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
                size,
            } => {
                consuming.unacknowledged.delivered(tag, consumer);
                let receipt = Receipt::new(consuming.connection, tag, consuming.lost.clone());
                let deliveries = deliveries(redelivered, count);
                self.counting.delivered(deliveries);
                let delivery = Delivery {
                    receipt,
                    body,
                    size,
                    deliveries,
                    origin: Origin::default(),
                    since: Instant::now(),
                };
                self.near_limit.delivered(&delivery, count);
                self.emit(Event::Delivered(delivery));
            }
            asya_amqp::Event::Consuming(_) | asya_amqp::Event::Cancelled(_) => {
                consuming.changing = None;
            }
            asya_amqp::Event::CancelledByBroker(name) => {
                self.cancelled_by_broker(&name, consuming);
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

    /// The queue was deleted or moved, or a delivery was not settled in time.
    fn cancelled_by_broker(&mut self, name: &str, consuming: &mut Consuming) {
        consuming.consumers.retain(|consumer| consumer.name != name);
        consuming.changing = None;
        // Messages of a deleted queue are not redelivered, so finish those in flight (SC-21).
        consuming.queue_is_gone = true;
        // A new queue of this name may have another type.
        self.timeout.refused = false;
        if !consuming.may_be_late() {
            self.log_queue_is_gone();
        } else if consuming.lookup.is_none() {
            let lookup = timeout(LOOKUP_TIMEOUT, self.connector.has_queue(&self.queue));
            let lookup = async { lookup.await.ok().flatten().unwrap_or(false) };
            consuming.lookup = Some(AbortOnDropHandle::new(tokio::spawn(lookup)));
        }
        self.emit(Event::Disconnected);
    }

    fn queue_is_gone(&self) -> String {
        format!("queue {} was deleted or moved", self.queue)
    }

    fn log_queue_is_gone(&mut self) {
        let why = self.queue_is_gone();
        self.connector.log_once(Purpose::Consume, &why);
    }

    fn delivery_timed_out(&self) -> String {
        format!(
            "a message of queue {} was not settled within the consumer timeout, so the broker took it back",
            self.queue
        )
    }

    /// Sends pending settlements, then closes the connection gracefully (SC-33).
    async fn close(&mut self, connection: Connection, consuming: &mut Consuming) {
        while let Ok((receipt, settlement)) = self.settlements.try_recv() {
            self.settle(&connection, consuming, &receipt, settlement);
        }
        for consumer in consuming.consumers.drain(..) {
            connection.cancel(&consumer.name);
        }
        consuming.return_all(&connection);
        consuming.acknowledge(&connection);
        connection.close().await;
    }

    fn settle(
        &mut self,
        connection: &Connection,
        consuming: &mut Consuming,
        receipt: &Receipt,
        settlement: Settlement,
    ) {
        consuming.settle(connection, receipt, settlement);
        self.settle_detached(receipt, settlement);
    }

    fn settle_detached(&mut self, receipt: &Receipt, settlement: Settlement) {
        for detached in &mut self.detached {
            detached.settle(receipt, settlement);
        }
        for done in self.detached.extract_if(.., |it| it.unsettled() == 0) {
            tokio::spawn(done.close());
        }
    }

    fn emit(&self, event: Event) {
        // The receiver is gone during shutdown.
        let _ = self.events.send(event);
    }
}

/// The result of a running lookup. A lookup that panicked counts as "not found".
async fn looked_up(lookup: &mut Option<AbortOnDropHandle<bool>>) -> Option<bool> {
    Some(lookup.as_mut()?.await.unwrap_or(false))
}

/// Quorum queues count deliveries, since RabbitMQ 4.3 only failed ones; classic queues set only the `redelivered` flag
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
