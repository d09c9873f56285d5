//! Who runs when: slots at the runtime, messages that wait for one, and how many are wanted (SC-42 to SC-46, SC-78 to
//! SC-80).

#[cfg(test)]
mod tests;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use self::waiting::Waiting;
use crate::broker::{Broker, Delivery, Demand, Event, Receipt, Settlement};
use crate::config::Lookahead;
use crate::decide::{Deliveries, Reason};
use crate::flow::{Context, Flow};
use crate::pace::{LONG_CALL, Pace};
use crate::probes::Health;
use crate::runtime::{Readiness, Runtime};
use crate::slot::{SlotEvent, Slots};

/// How long messages wait for a runtime that is away, before others may have them (SC-13).
const HOLD: Duration = Duration::from_secs(10);
/// How often gauges are brought up to date, and the process shows that it is alive.
const TICK: Duration = Duration::from_secs(1);
/// So many panics in [`PANIC_WINDOW`] end the process (SC-101).
const PANICS: usize = 5;
const PANIC_WINDOW: Duration = Duration::from_mins(1);

/// Why the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// The runtime did not become ready in time.
    RuntimeNeverReady,
    /// The runtime did not end itself after it was hung up.
    RuntimeStuck,
    /// Handling messages panicked too often.
    Panics,
}

/// The settings of the engine.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many requests may be open at the runtime.
    pub concurrency: usize,
    /// How many messages may wait.
    pub lookahead: Lookahead,
    /// How long a shutdown may take.
    pub grace_period: Duration,
}

/// Hands messages over, for as long as the process lives.
pub struct Engine<B, R> {
    context: Arc<Context<B, R>>,
    settings: Settings,
    health: Arc<Health>,
    events: mpsc::UnboundedReceiver<Event>,
    readiness: watch::Receiver<Readiness>,
    slots: Slots,
    pace: Pace,
    waiting: Waiting,
    flows: JoinSet<()>,
    in_flight: HashMap<Id, (Receipt, Instant)>,
    blocked: bool,
    panics: Vec<Instant>,
    warned: bool,
    next_tick: Instant,
    end: Option<End>,
}

impl<B: Broker, R: Runtime> Engine<B, R> {
    /// Nothing is handed over before [`Self::run`].
    pub fn new(
        context: Arc<Context<B, R>>,
        settings: Settings,
        health: Arc<Health>,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        let readiness = context.readiness.clone();
        Self {
            context,
            health,
            events,
            readiness,
            slots: Slots::default(),
            pace: Pace::new(settings.lookahead),
            waiting: Waiting::default(),
            flows: JoinSet::new(),
            in_flight: HashMap::new(),
            blocked: false,
            panics: Vec::new(),
            warned: false,
            next_tick: Instant::now(),
            end: None,
            settings,
        }
    }

    /// Runs until the process is to end, and all is settled that can be.
    pub async fn run(mut self) -> End {
        self.look_at_runtime();
        let end = loop {
            self.hand_over();
            self.ask_for_messages();
            if let Some(end) = self.end {
                break end;
            }
            self.wait().await;
            // Not by the timer alone, which would never have its turn under load.
            if Instant::now() >= self.deadline() {
                self.tick();
            }
        };
        self.shut_down(end).await;
        end
    }

    async fn wait(&mut self) {
        let deadline = self.deadline();
        tokio::select! {
            biased;
            () = self.context.stopping.cancelled() => self.end = Some(End::Stopped),
            Some(event) = self.slots.event() => self.slot_changed(event),
            Some(done) = self.flows.join_next_with_id() => self.flow_ended(done),
            Some(event) = self.events.recv() => self.broker_told(event),
            Ok(()) = self.readiness.changed() => self.look_at_runtime(),
            () = sleep_until(deadline) => {}
        }
    }

    /// When something is to be done even if nothing happens.
    fn deadline(&self) -> Instant {
        let others_could_have_it = self.pace.gives_back() && self.pace.lookahead(1) > 0;
        let long_call = self
            .slots
            .oldest_call()
            .filter(|_| others_could_have_it)
            .map(|since| since + LONG_CALL);
        let expires = self
            .waiting
            .oldest()
            .filter(|_| !self.is_ready())
            .map(|since| since + HOLD);
        [long_call, expires]
            .into_iter()
            .flatten()
            .fold(self.next_tick, Instant::min)
    }

    fn tick(&mut self) {
        self.next_tick = Instant::now() + TICK;
        self.health.beat();
        let oldest = self
            .in_flight
            .values()
            .map(|(_, since)| since.elapsed())
            .max();
        let metrics = &self.context.metrics;
        metrics
            .oldest_in_flight
            .set(oldest.unwrap_or_default().as_secs_f64());
        if self
            .slots
            .oldest_call()
            .is_some_and(|since| since.elapsed() >= LONG_CALL)
        {
            self.pace.is_stuck();
        }
        let expired = if self.is_ready() {
            Vec::new()
        } else {
            self.waiting.take_older_than(HOLD)
        };
        self.give_back(expired, Reason::Waited);
    }

    fn is_ready(&self) -> bool {
        matches!(*self.readiness.borrow(), Readiness::Ready { .. })
    }

    fn look_at_runtime(&mut self) {
        let readiness = *self.readiness.borrow_and_update();
        let ready = matches!(readiness, Readiness::Ready { .. });
        if self.health.set_runtime(ready) {
            tracing::info!(
                ready,
                "the runtime {}",
                if ready {
                    "takes messages"
                } else {
                    "takes no messages"
                }
            );
        }
        self.context.metrics.runtime_ready.set(ready.into());
        match readiness {
            Readiness::Waiting => {}
            Readiness::Ready { concurrency } => {
                let wanted = self.settings.concurrency;
                if concurrency < wanted && !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(
                        "ASYA_CONCURRENCY is {wanted}, but the runtime serves {concurrency} at a time"
                    );
                }
                self.slots.resize(wanted.min(concurrency));
                self.context
                    .metrics
                    .slots
                    .set(wanted.min(concurrency).try_into().unwrap_or(i64::MAX));
            }
            Readiness::Never => self.end = Some(End::RuntimeNeverReady),
            Readiness::Stuck => self.end = Some(End::RuntimeStuck),
        }
    }

    /// Hands over what waits, as far as there are slots.
    fn hand_over(&mut self) {
        while self.slots.has_free() && !self.blocked && self.end.is_none() && self.is_ready() {
            let Some(delivery) = self.waiting.pop() else {
                break;
            };
            if !self.context.runtime.is_there() {
                self.context.runtime.doubt();
                self.waiting.put_back(delivery);
                break;
            }
            self.begin(delivery);
        }
        self.context
            .metrics
            .waiting
            .set(self.waiting.len().try_into().unwrap_or(i64::MAX));
    }

    fn begin(&mut self, delivery: Delivery) {
        let slot = self.slots.take();
        if let Some(idle) = slot.idle() {
            self.context.metrics.waited(idle);
        }
        let receipt = delivery.receipt.clone();
        let flow = Flow::new(self.context.clone(), delivery);
        let handle = self.flows.spawn(flow.run(slot));
        self.in_flight
            .insert(handle.id(), (receipt, Instant::now()));
        self.count_active();
    }

    fn count_active(&self) {
        self.context
            .metrics
            .active
            .set(self.in_flight.len().try_into().unwrap_or(i64::MAX));
    }

    /// Tells the broker how many messages are wanted, and gives back what may not wait here any more (SC-43, SC-44).
    fn ask_for_messages(&mut self) {
        if self.end.is_some() || !self.is_ready() {
            self.context.broker.demand(Demand::default());
            return;
        }
        let slots = self.slots.count();
        let lookahead = self.pace.lookahead(slots);
        self.context.broker.demand(Demand { slots, lookahead });
        if lookahead == 0 && self.pace.gives_back() && !self.blocked && !self.slots.has_free() {
            let first = self
                .waiting
                .take_those(|delivery| delivery.deliveries == Deliveries::First);
            self.give_back(first, Reason::Waited);
        }
    }

    fn give_back(&mut self, deliveries: Vec<Delivery>, reason: Reason) {
        for delivery in deliveries {
            if !delivery.receipt.is_lost() {
                self.context.metrics.given_back(reason);
                let settled = self
                    .context
                    .broker
                    .settle(&delivery.receipt, Settlement::GiveBackNow);
                self.flows.spawn(settled);
            }
        }
    }

    fn broker_told(&mut self, event: Event) {
        match event {
            Event::Connected => {
                if self.health.set_broker(true) {
                    tracing::info!("connected to the broker");
                }
            }
            Event::Disconnected => {
                self.health.set_broker(false);
                self.waiting
                    .take_those(|delivery| delivery.receipt.is_lost());
            }
            Event::Blocked(blocked) => self.blocked = blocked,
            Event::Delivered(delivery) => {
                let came_again = delivery.deliveries != Deliveries::First;
                self.context
                    .metrics
                    .received(delivery.body.len(), came_again);
                self.waiting.push(delivery);
            }
        }
    }

    fn slot_changed(&mut self, event: SlotEvent) {
        if let Some(call) = self.slots.apply(event) {
            self.pace.called(call);
        }
    }

    fn flow_ended(&mut self, done: Result<(Id, ()), JoinError>) {
        let id = match &done {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let receipt = self.in_flight.remove(&id).map(|(receipt, _)| receipt);
        self.count_active();
        if done.is_err_and(|error| error.is_panic()) {
            self.panicked(receipt);
        }
    }

    /// A message whose handling panicked is given back (SC-101).
    fn panicked(&mut self, receipt: Option<Receipt>) {
        let now = Instant::now();
        self.panics.retain(|at| now - *at < PANIC_WINDOW);
        self.panics.push(now);
        if self.panics.len() >= PANICS {
            self.end = Some(End::Panics);
        }
        let Some(receipt) = receipt else { return };
        self.context.metrics.given_back(Reason::Panicked);
        let context = self.context.clone();
        self.flows.spawn(async move {
            sleep(context.broker.pause_before_giving_back()).await;
            context.broker.settle(&receipt, Settlement::GiveBack).await;
        });
    }

    /// Takes nothing more, lets slots finish, gives back what is unfinished at the end of the grace period, and closes the
    /// connections in order.
    async fn shut_down(&mut self, end: End) {
        self.context.stopping.cancel();
        let grace = self.settings.grace_period;
        let deadline =
            Instant::now() + grace.saturating_sub(Duration::from_secs(3).min(grace / 10));
        tracing::info!(in_flight = self.in_flight.len(), "ending: {end:?}");
        loop {
            let waiting = self.waiting.take_those(|_| true);
            self.give_back(waiting, Reason::Shutdown);
            tokio::select! {
                biased;
                done = self.flows.join_next_with_id() => match done {
                    Some(done) => self.flow_ended(done),
                    None => break,
                },
                Some(event) = self.events.recv() => self.broker_told(event),
                () = sleep_until(deadline) => {
                    self.flows.abort_all();
                    break;
                }
            }
            self.health.beat();
        }
        for (receipt, _) in std::mem::take(&mut self.in_flight).into_values() {
            self.context.metrics.given_back(Reason::Shutdown);
            self.context
                .broker
                .settle(&receipt, Settlement::GiveBackNow)
                .await;
        }
        self.context.broker.close().await;
    }
}
