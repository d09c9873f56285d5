//! In-memory broker for tests with a virtual clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Broker, Delivery, Demand, Event, Origin, Publication, Receipt, Refusal, Settlement};
use crate::decide::Deliveries;

/// Latency of a publisher confirm.
const CONFIRM_DELAY: Duration = Duration::from_millis(1);
/// Time until a lost connection is re-established.
const RECONNECT_DELAY: Duration = Duration::from_millis(200);

/// A broker with one consumed queue.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    consumed: String,
    queues: BTreeMap<String, VecDeque<Stored>>,
    missing: Vec<String>,
    rejected: Vec<Stored>,
    failed: usize,
    in_flight: BTreeMap<u64, Stored>,
    /// Deliveries whose leases have expired: they are delivered again although they are in flight.
    expired: BTreeSet<u64>,
    most_in_flight: usize,
    demand: Demand,
    events: Option<UnboundedSender<Event>>,
    lost: CancellationToken,
    connection: u64,
    last: u64,
    lost_confirms: usize,
    refusals: VecDeque<Refusal>,
    hangs: bool,
    /// How many messages are kept instead of being returned.
    keeps: usize,
    last_delivery: Option<Delivery>,
    counts: bool,
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub body: Bytes,
    /// How often it was delivered.
    pub delivered: u32,
}

impl Memory {
    /// Creates a broker that delivers from queue `consumed`.
    pub fn new(consumed: &str) -> Self {
        let state = State {
            consumed: consumed.to_owned(),
            counts: true,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Turns the consumed queue into a classic one: it no longer counts deliveries, so a deferred message goes to its
    /// end.
    pub fn stop_counting_deliveries(&self) {
        self.state.lock().counts = false;
    }

    /// Connects a sidecar.
    pub fn connect(&self, events: UnboundedSender<Event>) {
        let mut state = self.state.lock();
        let _ = events.send(Event::Connected);
        state.demand = Demand::default();
        state.events = Some(events);
    }

    /// Drops the sidecar's connection; its unsettled messages are redelivered.
    pub fn disconnect(&self) -> Option<UnboundedSender<Event>> {
        let mut state = self.state.lock();
        state.connection += 1;
        std::mem::take(&mut state.lost).cancel();
        let in_flight = std::mem::take(&mut state.in_flight);
        let consumed = state.consumed.clone();
        for (_, message) in in_flight.into_iter().rev() {
            state
                .queues
                .entry(consumed.clone())
                .or_default()
                .push_front(message);
        }
        let events = state.events.take()?;
        let _ = events.send(Event::Disconnected);
        Some(events)
    }

    /// Drops the connection and re-establishes it after [`RECONNECT_DELAY`].
    pub fn cut(&self) {
        let Some(events) = self.disconnect() else {
            return;
        };
        let this = self.clone();
        tokio::spawn(async move {
            sleep(RECONNECT_DELAY).await;
            let mut state = this.state.lock();
            if state.events.is_none() {
                let _ = events.send(Event::Connected);
                state.events = Some(events);
                state.deliver();
            }
        });
    }

    /// Stores the next publication but loses its confirm, so that it is published again.
    pub fn lose_a_confirm(&self) {
        self.state.lock().lost_confirms += 1;
    }

    /// Refuses the next publications.
    pub fn refuse(&self, refusals: impl IntoIterator<Item = Refusal>) {
        self.state.lock().refusals.extend(refusals);
    }

    /// Expires the leases of all messages in flight.
    pub fn expire(&self) {
        let mut state = self.state.lock();
        state.expired = state.in_flight.keys().copied().collect();
    }

    /// Makes settlements hang from now on.
    pub fn hang(&self) {
        self.state.lock().hangs = true;
    }

    /// Has the next message that would be returned processed again instead. It must be the last one that was delivered.
    pub fn keep(&self) {
        self.state.lock().keeps += 1;
    }

    /// Deletes or recreates a queue.
    pub fn set_missing(&self, queue: &str, missing: bool) {
        let mut state = self.state.lock();
        state.missing.retain(|name| name != queue);
        if missing {
            state.missing.push(queue.to_owned());
        }
    }

    /// Raises or clears a resource alarm.
    pub fn set_blocked(&self, blocked: bool) {
        if let Some(events) = &self.state.lock().events {
            let _ = events.send(Event::Blocked(blocked));
        }
    }

    /// Puts messages into a queue.
    pub fn put(&self, queue: &str, bodies: impl IntoIterator<Item = String>) {
        self.put_delivered(queue, bodies, 0);
    }

    /// Puts messages into a queue as if they had already been delivered `delivered` times.
    pub fn put_delivered(
        &self,
        queue: &str,
        bodies: impl IntoIterator<Item = String>,
        delivered: u32,
    ) {
        let mut state = self.state.lock();
        let messages = bodies.into_iter().map(|body| Stored {
            body: body.into(),
            delivered,
        });
        state
            .queues
            .entry(queue.to_owned())
            .or_default()
            .extend(messages);
        state.deliver();
    }

    pub fn messages(&self, queue: &str) -> Vec<Stored> {
        self.state
            .lock()
            .queues
            .get(queue)
            .cloned()
            .unwrap_or_default()
            .into()
    }

    /// How often a message was requeued as failed.
    pub fn failed(&self) -> usize {
        self.state.lock().failed
    }

    /// The rejected messages.
    pub fn rejected(&self) -> Vec<Stored> {
        self.state.lock().rejected.clone()
    }

    /// The number of deliveries so far.
    pub fn deliveries(&self) -> u64 {
        self.state.lock().last
    }

    /// The highest number of messages that were in flight at the same time.
    pub fn most_in_flight(&self) -> usize {
        self.state.lock().most_in_flight
    }

    /// Messages in flight plus those in the consumed queue.
    pub fn left(&self) -> usize {
        let state = self.state.lock();
        state.in_flight.len() + state.queues.get(&state.consumed).map_or(0, VecDeque::len)
    }

    async fn store(self, publication: Publication) -> Result<(), Refusal> {
        loop {
            sleep(CONFIRM_DELAY).await;
            let mut state = self.state.lock();
            if let Some(refusal) = state.refusals.pop_front() {
                return Err(refusal);
            }
            if state.missing.contains(&publication.queue) {
                return Err(Refusal::NoQueue);
            }
            let message = Stored {
                body: publication.body.clone(),
                delivered: 0,
            };
            state
                .queues
                .entry(publication.queue.clone())
                .or_default()
                .push_back(message);
            state.deliver();
            if state.lost_confirms == 0 {
                return Ok(());
            }
            state.lost_confirms -= 1;
        }
    }
}

impl State {
    fn deliver(&mut self) {
        let Some(events) = self.events.clone() else {
            return;
        };
        while self.in_flight.len() < self.demand.in_flight() {
            let Some(mut message) = self
                .queues
                .get_mut(&self.consumed)
                .and_then(VecDeque::pop_front)
            else {
                break;
            };
            self.last += 1;
            let receipt = Receipt::new(self.connection, self.last, self.lost.clone());
            let deliveries = match message.delivered {
                0 => Deliveries::First,
                _ if !self.counts => Deliveries::Redelivered,
                count => Deliveries::Before(count),
            };
            message.delivered += 1;
            let body = message.body.clone();
            self.in_flight.insert(self.last, message);
            self.most_in_flight = self.most_in_flight.max(self.in_flight.len());
            let delivery = Delivery {
                receipt,
                size: body.len(),
                body,
                deliveries,
                origin: Origin::default(),
                since: Instant::now(),
            };
            self.last_delivery = Some(delivery.clone());
            let _ = events.send(Event::Delivered(delivery));
        }
    }

    fn settle(&mut self, receipt: &Receipt, settlement: Settlement) {
        if receipt.connection != self.connection {
            return;
        }
        if settlement.is_requeue() && self.keeps > 0 {
            self.keeps -= 1;
            if let Some((events, delivery)) = self.events.as_ref().zip(self.last_delivery.clone()) {
                let _ = events.send(Event::Kept(delivery));
            }
            return;
        }
        let Some(message) = self.in_flight.remove(&receipt.number) else {
            return;
        };
        self.failed += usize::from(settlement == Settlement::RequeueFailed);
        match settlement {
            Settlement::Acknowledge => {}
            Settlement::Reject => self.rejected.push(message),
            Settlement::RequeueFailed | Settlement::Requeue | Settlement::RequeueNow => {
                self.queues
                    .entry(self.consumed.clone())
                    .or_default()
                    .push_front(message);
            }
        }
        self.deliver();
    }
}

impl Broker for Memory {
    fn demand(&self, demand: Demand) {
        let mut state = self.state.lock();
        state.demand = demand;
        state.deliver();
    }

    fn begin(&self, receipt: &Receipt) -> bool {
        let mut state = self.state.lock();
        if !state.expired.contains(&receipt.number) {
            return !receipt.is_lost();
        }
        state.settle(receipt, Settlement::RequeueNow);
        false
    }

    fn publish(
        &self,
        publication: Publication,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        self.clone().store(publication)
    }

    fn settle(
        &self,
        receipt: &Receipt,
        settlement: Settlement,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut state = self.state.lock();
        state.settle(receipt, settlement);
        let hangs = state.hangs;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
        }
    }

    fn defer(&self, delivery: &Delivery) -> impl Future<Output = ()> + Send + 'static {
        let (this, delivery) = (self.clone(), delivery.clone());
        let own = Publication {
            queue: self.state.lock().consumed.clone(),
            id: String::new(),
            body: delivery.body,
            origin: Origin::default(),
            index: 0,
        };
        async move {
            let counts = this.state.lock().counts;
            let settlement = if !counts && this.clone().store(own).await.is_ok() {
                Settlement::Acknowledge
            } else {
                Settlement::RequeueFailed
            };
            this.settle(&delivery.receipt, settlement).await;
        }
    }

    fn requeue_delay(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn close(&self) {
        self.disconnect();
    }
}
