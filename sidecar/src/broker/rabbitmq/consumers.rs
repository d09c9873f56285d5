//! The connection that consumes and acknowledges.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::connect::{Connector, name};
use super::prefetch::{Change, change};
use crate::amqp::{self, Connection, Purpose};
use crate::broker::{Delivery, Demand, Event, Origin, Receipt, Settlement};
use crate::decide::Deliveries;
use crate::metrics::BrokerMetrics;

/// Consumes, for as long as the process lives.
pub(super) struct Session {
    pub(super) connector: Connector,
    pub(super) queue: String,
    /// How long a delivery may be unacknowledged, where the broker's default is too short.
    pub(super) timeout: Option<Duration>,
    pub(super) demand: watch::Receiver<Demand>,
    pub(super) settlements: mpsc::UnboundedReceiver<(Receipt, Settlement)>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) metrics: BrokerMetrics,
}

/// What is known about one connection.
struct Consuming {
    generation: u64,
    lost: CancellationToken,
    consumers: Vec<Consumer>,
    /// Consumers that were ever added, for their names.
    added: u64,
    /// A consumer is being added or cancelled.
    changing: bool,
    /// Deliveries that are not settled, and the consumer that they came to.
    unsettled: BTreeMap<u64, String>,
}

struct Consumer {
    name: String,
    prefetch: usize,
}

/// What happened while a connection was there.
enum Happened {
    Event(amqp::Event),
    Settle(Receipt, Settlement),
    DemandChanged,
    Closing,
}

impl Session {
    pub(super) async fn run(mut self) {
        let mut generation = 0;
        while let Some(connection) = self.connector.connection(Purpose::Consume).await {
            generation += 1;
            let mut consuming = Consuming::new(generation);
            self.tell(Event::Connected);
            self.metrics.set_connected(name(Purpose::Consume), true);
            let why = self.serve(connection, &mut consuming).await;
            consuming.lost.cancel();
            self.metrics.set_connected(name(Purpose::Consume), false);
            self.tell(Event::Disconnected);
            let Some(why) = why else { return };
            self.connector.tell(Purpose::Consume, &why);
        }
    }

    /// Serves until the connection is lost, and says why; `None`: it was closed in order.
    async fn serve(
        &mut self,
        mut connection: Connection,
        consuming: &mut Consuming,
    ) -> Option<String> {
        loop {
            self.adjust(&connection, consuming);
            match self.next(&mut connection).await {
                Happened::Event(event) => {
                    if let Err(why) = self.take(event, consuming) {
                        return Some(why);
                    }
                }
                Happened::Settle(receipt, settlement) => {
                    consuming.settle(&connection, &receipt, settlement);
                }
                Happened::DemandChanged => {}
                Happened::Closing => {
                    self.close(connection, consuming).await;
                    return None;
                }
            }
        }
    }

    async fn next(&mut self, connection: &mut Connection) -> Happened {
        tokio::select! {
            biased;
            Some((receipt, settlement)) = self.settlements.recv() => Happened::Settle(receipt, settlement),
            Ok(()) = self.demand.changed() => Happened::DemandChanged,
            event = connection.event() => Happened::Event(event),
            () = self.connector.closing() => Happened::Closing,
        }
    }

    /// Adds or cancels a consumer, if too few or too many messages may be in flight.
    fn adjust(&self, connection: &Connection, consuming: &mut Consuming) {
        if consuming.changing {
            return;
        }
        let wanted = self.demand.borrow().in_flight();
        let prefetches: Vec<usize> = consuming
            .consumers
            .iter()
            .map(|consumer| consumer.prefetch)
            .collect();
        match change(wanted, consuming.orphaned(), &prefetches) {
            Change::None => {}
            Change::Add(prefetch) => {
                consuming.added += 1;
                let name = format!("asya-{}", consuming.added);
                let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
                connection.consume(&self.queue, &name, prefetch, self.timeout);
                consuming.consumers.push(Consumer {
                    name,
                    prefetch: prefetch.into(),
                });
                consuming.changing = true;
            }
            Change::CancelLast => {
                if let Some(last) = consuming.consumers.pop() {
                    connection.cancel(&last.name);
                    consuming.changing = true;
                }
            }
        }
    }

    fn take(&mut self, event: amqp::Event, consuming: &mut Consuming) -> Result<(), String> {
        match event {
            amqp::Event::Delivered {
                consumer,
                tag,
                redelivered,
                count,
                body,
            } => {
                consuming.unsettled.insert(tag, consumer);
                let receipt = Receipt::new(consuming.generation, tag, consuming.lost.clone());
                let deliveries = deliveries(redelivered, count);
                self.tell(Event::Delivered(Delivery {
                    receipt,
                    body,
                    deliveries,
                    origin: Origin::default(),
                }));
            }
            amqp::Event::Consuming(_) | amqp::Event::Cancelled(_) => consuming.changing = false,
            amqp::Event::CancelledByBroker(name) => {
                consuming.consumers.retain(|consumer| consumer.name != name);
                consuming.changing = false;
                return Err(format!("queue {} is gone", self.queue));
            }
            amqp::Event::ChannelClosed { code, text } => {
                return Err(format!(
                    "queue {} cannot be consumed: {code} {text}",
                    self.queue
                ));
            }
            amqp::Event::Lost(why) => return Err(why),
            _ => {}
        }
        Ok(())
    }

    /// Settles what was asked for before, then says goodbye (SC-33).
    async fn close(&mut self, connection: Connection, consuming: &mut Consuming) {
        while let Ok((receipt, settlement)) = self.settlements.try_recv() {
            consuming.settle(&connection, &receipt, settlement);
        }
        connection.close().await;
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more when the process ends.
        let _ = self.events.send(event);
    }
}

impl Consuming {
    fn new(generation: u64) -> Self {
        Self {
            generation,
            lost: CancellationToken::new(),
            consumers: Vec::new(),
            added: 0,
            changing: false,
            unsettled: BTreeMap::new(),
        }
    }

    /// Deliveries to consumers that are gone.
    fn orphaned(&self) -> usize {
        let is_there = |name: &String| self.consumers.iter().any(|consumer| consumer.name == *name);
        self.unsettled
            .values()
            .filter(|name| !is_there(name))
            .count()
    }

    fn settle(&mut self, connection: &Connection, receipt: &Receipt, settlement: Settlement) {
        if receipt.generation != self.generation || self.unsettled.remove(&receipt.number).is_none()
        {
            return;
        }
        match settlement {
            Settlement::Acknowledge => connection.acknowledge(receipt.number),
            Settlement::GiveBack | Settlement::GiveBackNow => {
                connection.refuse(receipt.number, true);
            }
            Settlement::Reject => connection.refuse(receipt.number, false),
        }
    }
}

/// Quorum queues count; classic queues only know that it was delivered (SC-34).
fn deliveries(redelivered: bool, count: Option<u64>) -> Deliveries {
    match count {
        Some(0) => Deliveries::First,
        Some(count) => Deliveries::Before(u32::try_from(count).unwrap_or(u32::MAX)),
        None if redelivered => Deliveries::Again,
        None => Deliveries::First,
    }
}
