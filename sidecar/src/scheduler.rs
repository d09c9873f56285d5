//! Scheduling: slots at the runtime, prefetched messages, and broker demand (SC-42 to SC-46, SC-78 to SC-80).

#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::waiting::Waiting;
use crate::broker::{Broker, Delivery, Demand, Event, Receipt, Settlement};
use crate::config::Lookahead;
use crate::decide::{Deliveries, Reason};
use crate::lookahead::{LONG_CALL, LookaheadPolicy};
use crate::message_task::{Context, MessageTask};
use crate::probes::Health;
use crate::runtime::{Readiness, Runtime};
use crate::slot::{SlotEvent, Slots};

/// How long prefetched messages wait for an unavailable runtime before they are requeued (SC-13).
const PREFETCH_HOLD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a message prefetched by lookahead `auto` waits for a slot at most: half the margin of the consumer timeout,
/// which assumes that it does not wait (SC-32).
const LOOKAHEAD_HOLD_TIMEOUT: Duration = Duration::from_mins(5);
/// Interval of gauge updates and liveness heartbeats.
const TICK: Duration = Duration::from_secs(1);
/// How long requeuing unfinished messages may take at the end of the grace period (SC-80).
const REQUEUE_TIMEOUT: Duration = Duration::from_secs(1);
/// This many panics within [`PANIC_WINDOW`] terminate the process (SC-101).
const PANICS: usize = 5;
const PANIC_WINDOW: Duration = Duration::from_mins(1);

/// Why the process exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// SIGTERM or SIGINT.
    Stopped,
    /// The runtime did not become ready in time.
    RuntimeNeverReady,
    /// The runtime neither exited nor answered after a call timed out, or no longer accepts connections.
    RuntimeStuck,
    /// Message processing panicked too often.
    Panics,
}

#[derive(Clone, Copy, Debug)]
pub struct SchedulerSettings {
    /// Maximum open requests at the runtime.
    pub concurrency: usize,
    /// Prefetch policy.
    pub lookahead: Lookahead,
    pub grace_period: Duration,
}

/// Dispatches messages to the runtime until the process exits.
pub struct Scheduler<B, R> {
    context: Arc<Context<B, R>>,
    settings: SchedulerSettings,
    health: Arc<Health>,
    events: mpsc::UnboundedReceiver<Event>,
    readiness: watch::Receiver<Readiness>,
    /// How many messages may have caused a crash and are called alone (SC-49).
    suspects: watch::Receiver<usize>,
    slots: Slots,
    lookahead: LookaheadPolicy,
    waiting: Waiting,
    tasks: JoinSet<()>,
    in_flight: HashMap<Id, (Receipt, Instant)>,
    /// Tasks of lost deliveries, whose calls run to completion and occupy slots until then.
    lost: HashSet<Id>,
    blocked: bool,
    panics: Vec<Instant>,
    warned: bool,
    next_tick: Instant,
    end: Option<Exit>,
}

impl<B: Broker, R: Runtime> Scheduler<B, R> {
    /// Creates a scheduler; [`Self::run`] starts it.
    pub fn new(
        context: Arc<Context<B, R>>,
        settings: SchedulerSettings,
        health: Arc<Health>,
        events: mpsc::UnboundedReceiver<Event>,
    ) -> Self {
        let readiness = context.readiness.clone();
        let suspects = context.calls.suspects();
        Self {
            context,
            health,
            events,
            readiness,
            suspects,
            slots: Slots::default(),
            lookahead: LookaheadPolicy::new(settings.lookahead),
            waiting: Waiting::default(),
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            lost: HashSet::new(),
            blocked: false,
            panics: Vec::new(),
            warned: false,
            next_tick: Instant::now(),
            end: None,
            settings,
        }
    }

    /// Runs until shutdown, which includes the graceful settlement of messages in flight.
    pub async fn run(mut self) -> Exit {
        self.update_readiness();
        let end = loop {
            self.dispatch_waiting();
            self.update_demand();
            if let Some(end) = self.end {
                break end;
            }
            self.wait().await;
            // Checked here because the biased select starves its timer branch under load.
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
            () = self.context.stopping.cancelled() => self.end = Some(Exit::Stopped),
            Some(event) = self.slots.event() => self.slot_changed(event),
            Some(done) = self.tasks.join_next_with_id() => self.task_ended(done),
            Some(event) = self.events.recv() => self.broker_event(event),
            Ok(()) = self.readiness.changed() => self.update_readiness(),
            Ok(()) = self.suspects.changed() => {}
            () = sleep_until(deadline) => {}
        }
    }

    /// When the scheduler must wake up even without an event.
    fn deadline(&self) -> Instant {
        let requeues_prefetched = self.lookahead.is_adaptive() && self.lookahead.limit(1) > 0;
        let long_call = self
            .slots
            .oldest_call()
            .filter(|_| requeues_prefetched)
            .map(|since| since + LONG_CALL);
        let expires = self.waiting.oldest().zip(self.max_wait());
        let expires = expires.map(|(since, limit)| since + limit);
        [long_call, expires]
            .into_iter()
            .flatten()
            .fold(self.next_tick, Instant::min)
    }

    fn tick(&mut self) {
        self.next_tick = Instant::now() + TICK;
        self.health.heartbeat();
        let in_flight = self.in_flight.values().map(|(_, since)| *since);
        let oldest = in_flight.chain(self.waiting.delivered()).min();
        let oldest = oldest.map(|since| since.elapsed());
        let metrics = &self.context.metrics;
        metrics
            .oldest_in_flight
            .set(oldest.unwrap_or_default().as_secs_f64());
        if self
            .slots
            .oldest_call()
            .is_some_and(|since| since.elapsed() >= LONG_CALL)
        {
            self.lookahead.record_long_call();
        }
        if let Some(limit) = self.max_wait() {
            let expired = self.waiting.take_older_than(limit);
            self.requeue(expired, Reason::Waited);
        }
    }

    /// How long a prefetched message may wait before it is requeued.
    fn max_wait(&self) -> Option<Duration> {
        if !self.takes_messages() {
            return Some(PREFETCH_HOLD_TIMEOUT);
        }
        // The consumer timeout covers the wait of messages that a fixed lookahead has prefetched.
        let is_limited = self.lookahead.is_adaptive() && !self.blocked && !self.slots.has_free();
        is_limited.then_some(LOOKAHEAD_HOLD_TIMEOUT)
    }

    fn is_ready(&self) -> bool {
        matches!(*self.readiness.borrow(), Readiness::Ready { .. })
    }

    /// Whether messages are called alone, so that no other one may be passed to the runtime.
    fn has_suspects(&self) -> bool {
        *self.suspects.borrow() > 0
    }

    fn takes_messages(&self) -> bool {
        self.is_ready() && !self.has_suspects()
    }

    fn update_readiness(&mut self) {
        let readiness = *self.readiness.borrow_and_update();
        let ready = matches!(readiness, Readiness::Ready { .. });
        if self.health.set_runtime(ready) {
            tracing::info!(
                ready,
                "runtime {}",
                if ready { "ready" } else { "not ready" }
            );
        }
        self.context.metrics.runtime_ready.set(ready.into());
        match readiness {
            Readiness::Waiting => {}
            Readiness::Ready { concurrency } => {
                let wanted = self.settings.concurrency;
                if concurrency < wanted && !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(
                        "ASYA_CONCURRENCY is {wanted}, but the runtime supports only {concurrency} concurrent requests"
                    );
                }
                self.slots.resize(wanted.min(concurrency));
                self.context
                    .metrics
                    .slots
                    .set(wanted.min(concurrency).try_into().unwrap_or(i64::MAX));
            }
            Readiness::Never => self.end = Some(Exit::RuntimeNeverReady),
            Readiness::Stuck => self.end = Some(Exit::RuntimeStuck),
        }
    }

    /// Dispatches prefetched messages to free slots.
    fn dispatch_waiting(&mut self) {
        while self.slots.has_free() && !self.blocked && self.end.is_none() && self.takes_messages()
        {
            let Some((since, delivery)) = self.waiting.pop() else {
                break;
            };
            if !self.context.runtime.is_available() {
                self.context.runtime.recheck();
                self.waiting.put_back(since, delivery);
                break;
            }
            if self.context.broker.begin(&delivery.receipt) {
                self.begin(delivery);
            }
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
        let (receipt, since) = (delivery.receipt.clone(), delivery.since);
        let task = MessageTask::new(self.context.clone(), delivery);
        let handle = self.tasks.spawn(task.run(slot));
        self.in_flight.insert(handle.id(), (receipt, since));
        self.count_active();
    }

    fn count_active(&self) {
        self.context
            .metrics
            .active
            .set(self.in_flight.len().try_into().unwrap_or(i64::MAX));
    }

    /// Updates the broker's demand, and requeues prefetched messages once lookahead is disabled (SC-43, SC-44).
    fn update_demand(&mut self) {
        if self.end.is_some() || !self.is_ready() {
            self.context.intake.set(Demand::default());
            return;
        }
        let has_suspects = self.has_suspects();
        let slots = self.slots.count().saturating_sub(self.lost.len());
        let lookahead = self.lookahead.limit(self.slots.count());
        let demand = if has_suspects {
            // Newly delivered messages would wait until the last suspect is done.
            Demand::default()
        } else {
            Demand { slots, lookahead }
        };
        self.context.intake.set(demand);
        let is_idle = self.slots.has_free() && !has_suspects;
        if demand.lookahead == 0 && self.lookahead.is_adaptive() && !self.blocked && !is_idle {
            let first = self
                .waiting
                .take_matching(|delivery| delivery.deliveries == Deliveries::First);
            self.requeue(first, Reason::Waited);
        }
    }

    fn requeue(&mut self, deliveries: Vec<Delivery>, reason: Reason) {
        for delivery in deliveries {
            if !delivery.receipt.is_lost() {
                self.context.metrics.requeued(reason);
                let settled = self
                    .context
                    .broker
                    .settle(&delivery.receipt, Settlement::RequeueNow);
                self.tasks.spawn(settled);
            }
        }
    }

    fn broker_event(&mut self, event: Event) {
        match event {
            Event::Connected => {
                if self.health.set_broker(true) {
                    tracing::info!("connected to the broker");
                }
            }
            Event::Disconnected => {
                self.health.set_broker(false);
                // Its messages are redelivered, and if prefetched again, might wait behind a call that turns out to be
                // long.
                self.lookahead.restart();
                self.waiting
                    .take_matching(|delivery| delivery.receipt.is_lost());
                let lost = self.in_flight.iter();
                let lost = lost.filter(|(_, (receipt, _))| receipt.is_lost());
                self.lost = lost.map(|(id, _)| *id).collect();
            }
            Event::Blocked(blocked) => self.blocked = blocked,
            Event::Delivered(delivery) => {
                let redelivered = delivery.deliveries != Deliveries::First;
                self.context.metrics.received(delivery.size, redelivered);
                self.waiting.push(delivery);
            }
            Event::Kept(delivery) => self.waiting.push(delivery),
        }
    }

    fn slot_changed(&mut self, event: SlotEvent) {
        if let Some(call) = self.slots.apply(event) {
            self.lookahead.record_call(call);
        }
    }

    fn task_ended(&mut self, done: Result<(Id, ()), JoinError>) {
        let id = match &done {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let receipt = self.in_flight.remove(&id).map(|(receipt, _)| receipt);
        self.lost.remove(&id);
        self.count_active();
        if done.is_err_and(|error| error.is_panic()) {
            self.panicked(receipt);
        }
    }

    /// Requeues a message whose processing panicked (SC-101).
    fn panicked(&mut self, receipt: Option<Receipt>) {
        let now = Instant::now();
        self.panics.retain(|at| now - *at < PANIC_WINDOW);
        self.panics.push(now);
        if self.panics.len() >= PANICS {
            self.end = Some(Exit::Panics);
        }
        let Some(receipt) = receipt else { return };
        self.context.metrics.requeued(Reason::Panicked);
        let context = self.context.clone();
        self.tasks.spawn(async move {
            sleep(context.broker.requeue_delay()).await;
            context
                .broker
                .settle(&receipt, Settlement::RequeueFailed)
                .await;
        });
    }

    /// Stops consuming, waits for running calls, requeues what is unfinished at the end of the grace period, and closes
    /// the connections gracefully.
    async fn shut_down(&mut self, end: Exit) {
        self.context.stopping.cancel();
        let grace = self.settings.grace_period;
        let deadline =
            Instant::now() + grace.saturating_sub(Duration::from_secs(3).min(grace / 10));
        tracing::info!(in_flight = self.in_flight.len(), "shutting down: {end:?}");
        loop {
            // Nobody else gives back what was delivered just before.
            while let Ok(event) = self.events.try_recv() {
                self.broker_event(event);
            }
            let waiting = self.waiting.take_matching(|_| true);
            self.requeue(waiting, Reason::Shutdown);
            let next_tick = self.next_tick;
            tokio::select! {
                biased;
                done = self.tasks.join_next_with_id() => match done {
                    Some(done) => self.task_ended(done),
                    None => break,
                },
                Some(event) = self.events.recv() => self.broker_event(event),
                () = sleep_until(deadline) => {
                    self.tasks.abort_all();
                    break;
                }
                () = sleep_until(next_tick) => {}
            }
            if Instant::now() >= self.next_tick {
                self.tick();
            }
        }
        self.requeue_unfinished().await;
        self.context.broker.close().await;
    }

    /// Requeues all messages in flight concurrently, for at most [`REQUEUE_TIMEOUT`].
    async fn requeue_unfinished(&mut self) {
        let mut settling = JoinSet::new();
        for (receipt, _) in std::mem::take(&mut self.in_flight).into_values() {
            self.context.metrics.requeued(Reason::Shutdown);
            let broker = &self.context.broker;
            settling.spawn(broker.settle(&receipt, Settlement::RequeueNow));
        }
        // Unsettled messages are redelivered once the connection is closed or the visibility timeout expires.
        let _ = timeout(REQUEUE_TIMEOUT, settling.join_all()).await;
    }
}
