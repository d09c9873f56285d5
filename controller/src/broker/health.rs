//! The health check: observes all actors' queues on its own schedule, so that reconciles do not have to. It changes
//! nothing itself, but enqueues the actors whose queues need a reconcile (QUE-20 to QUE-22, FW-33).

mod failures;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::Transport;
use asya_shared::transport::ActorQueue;
use futures::future::{BoxFuture, join, join_all};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info};

use super::depths::Depths;
use super::rechecks::RecheckReason;
use super::{BrokerError, Count, Depth, QueueCheck, QueueObservation};
use crate::record::Key;

pub use failures::CheckFailures;

/// How soon queues that could not be read are checked again: an outage is found long before the next regular check.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Queues per transport that are tagged after one check. After an upgrade none is tagged, and tagging all of them
/// together would be throttled and reported as a broker fault (QUE-35).
const TAGGED_PER_CHECK: usize = 500;

/// The queues to check on one transport.
#[derive(Clone)]
pub struct TransportQueues {
    pub transport: Transport,
    /// Managed queues of actors that are not being deleted.
    pub queues: Vec<CheckedQueue>,
}

#[derive(Clone)]
pub struct CheckedQueue {
    pub queue: ActorQueue,
    /// Whether its actor has replicas, which requires more frequent counts.
    pub counts_often: bool,
    /// Whether its actor is paused, so that a recheck does not enqueue it.
    pub is_paused: bool,
}

/// Where the queues to check come from, and where their changes are reported.
pub trait QueueSource: Send + Sync {
    /// All queues to check now.
    fn queues(&self) -> Vec<TransportQueues>;
    /// Enqueues an actor whose queue no longer matches its last verification: the reconcile must observe the queue.
    fn enqueue_recheck(&self, actor: &Key, reason: &RecheckReason);
    /// Enqueues an actor whose queue was missing in a count, unless a reconcile is about to observe the queue anyway.
    fn enqueue_missing(&self, actor: &Key);
    /// Enqueues an actor whose status should report another depth.
    fn enqueue_depth_change(&self, actor: &Key);
}

/// One result per queue.
pub type QueueResults<T> = Vec<(ActorQueue, Result<T, BrokerError>)>;

/// Queries many queues of a transport together; results come in any order.
pub trait QueueObserver: Send + Sync {
    /// Returns the state of the queues.
    fn observe_many<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<ActorQueue>,
    ) -> BoxFuture<'a, QueueResults<QueueObservation>>;

    /// Returns the message counts of the queues.
    fn depths<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<ActorQueue>,
    ) -> BoxFuture<'a, QueueResults<Count>>;
}

/// Check intervals; zero disables a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckIntervals {
    /// Full check of all queues.
    pub check: Duration,
    /// Message count of queues whose actors have replicas.
    pub count: Duration,
}

pub struct HealthCheck<S, O> {
    pub source: S,
    pub observer: O,
    /// Receives the counts.
    pub depths: Arc<Depths>,
    /// The queues that could not be read.
    pub failures: CheckFailures,
    pub intervals: CheckIntervals,
}

impl<S: QueueSource, O: QueueObserver> HealthCheck<S, O> {
    /// Runs until dropped, when the lease ends.
    pub async fn run(&self) {
        join(self.run_checks(), self.run_counts()).await;
    }

    async fn run_checks(&self) {
        initial_delay(self.intervals.check).await;
        loop {
            self.check().await;
            let next = Instant::now() + jittered(self.intervals.check);
            loop {
                let repeat = Instant::now() + jittered(REPEAT_INTERVAL.min(self.intervals.check));
                sleep_until(repeat.min(next)).await;
                if repeat >= next {
                    break;
                }
                self.repeat().await;
            }
        }
    }

    async fn run_counts(&self) {
        initial_delay(self.intervals.count).await;
        loop {
            self.count().await;
            sleep(jittered(self.intervals.count)).await;
        }
    }

    /// Checks all queues once; no transport waits for another.
    pub async fn check(&self) {
        let transports = self.source.queues();
        let actors = actors_of(&transports);
        self.depths.retain(&actors);
        self.failures.retain(&actors);
        self.check_transports(&transports).await;
    }

    /// Checks the queues again that could not be read last time.
    async fn repeat(&self) {
        if self.failures.is_empty() {
            return;
        }
        let mut transports = self.source.queues();
        for transport in &mut transports {
            let is_repeated =
                |checked: &CheckedQueue| self.failures.is_repeated(&key_of(&checked.queue));
            transport.queues.retain(is_repeated);
        }
        transports.retain(|transport| !transport.queues.is_empty());
        self.check_transports(&transports).await;
    }

    async fn check_transports(&self, transports: &[TransportQueues]) {
        join_all(
            transports
                .iter()
                .map(|transport| self.check_transport(transport)),
        )
        .await;
    }

    async fn check_transport(&self, transport: &TransportQueues) {
        let queues = transport.queues.iter().map(|checked| checked.queue.clone());
        let unpaused = unpaused_actors(transport);
        let observations = self
            .observer
            .observe_many(&transport.transport, queues.collect())
            .await;
        let mut tags_left = TAGGED_PER_CHECK;
        for (queue, observation) in observations {
            let actor = key_of(&queue);
            match observation {
                Err(BrokerError::TooManyCalls(_) | BrokerError::Fenced(_)) => {}
                Err(BrokerError::CircuitOpen(..)) => self.failures.recheck_soon(&actor),
                Err(error) => {
                    debug!(%actor, %error, "cannot check the queue");
                    let is_intolerable = self.failures.record_check(&actor, &error);
                    self.record_failed_reading(&actor, is_intolerable);
                    // Another check would not change whose queue it is.
                    let is_definite = matches!(error, BrokerError::QueueNameTaken(_));
                    if !is_intolerable && !is_definite {
                        continue;
                    }
                    if unpaused.contains(&actor) {
                        self.source
                            .enqueue_recheck(&actor, &RecheckReason::Unknown(error));
                    }
                    self.failures.record_handled(&actor);
                }
                Ok(observation) => {
                    self.failures.clear(&actor);
                    if observation.check == QueueCheck::NotFound {
                        self.record_depth(&actor, None);
                    } else {
                        self.record_reading(&actor, observation.depth);
                    }
                    if !unpaused.contains(&actor) {
                        continue;
                    }
                    if observation.check == QueueCheck::NotTaggedYet {
                        if tags_left == 0 {
                            continue;
                        }
                        tags_left -= 1;
                    }
                    self.handle_check(&actor, &queue, &observation.check);
                }
            }
        }
    }

    fn handle_check(&self, actor: &Key, queue: &ActorQueue, check: &QueueCheck) {
        let reason = match check {
            QueueCheck::Ready(_) => return,
            QueueCheck::NotFound => {
                let queue = &*queue.names.queue;
                info!(%actor, queue, "the queue is missing, so its actor is reconciled");
                RecheckReason::Missing
            }
            QueueCheck::Drifted | QueueCheck::NotTaggedYet | QueueCheck::Mismatch { .. } => {
                RecheckReason::Changed
            }
        };
        self.source.enqueue_recheck(actor, &reason);
    }

    /// Counts the messages of all queues whose actors have replicas, once.
    pub async fn count(&self) {
        let transports = self.source.queues();
        if !self.failures.is_empty() {
            self.failures.retain(&actors_of(&transports));
        }
        join_all(
            transports
                .iter()
                .map(|transport| self.count_transport(transport)),
        )
        .await;
    }

    async fn count_transport(&self, transport: &TransportQueues) {
        let counted = transport
            .queues
            .iter()
            .filter(|checked| checked.counts_often);
        let queues: Vec<ActorQueue> = counted.map(|checked| checked.queue.clone()).collect();
        let unpaused = unpaused_actors(transport);
        if queues.is_empty() {
            return;
        }
        let mut failing = HashSet::new();
        for (queue, count) in self.observer.depths(&transport.transport, queues).await {
            let actor = key_of(&queue);
            if count.is_ok() {
                self.failures.clear_counts(&actor);
            }
            match count {
                Err(BrokerError::TooManyCalls(_) | BrokerError::Fenced(_)) => {}
                Ok(Count::Unknown) => self.record_reading(&actor, None),
                Ok(Count::Messages(depth)) => self.record_reading(&actor, Some(depth)),
                Ok(Count::NotFound) => {
                    self.record_depth(&actor, None);
                    if unpaused.contains(&actor) {
                        self.source.enqueue_missing(&actor);
                    }
                }
                Err(error) => {
                    debug!(%actor, %error, "cannot count the messages");
                    if !matches!(error, BrokerError::CircuitOpen(..)) {
                        let is_intolerable = self.failures.record_count(&actor, &error);
                        self.record_failed_reading(&actor, is_intolerable);
                    }
                    failing.insert(actor.namespace);
                }
            }
        }
        // Queues that are not counted may have the same fault, if they share the credentials.
        let actors = transport
            .queues
            .iter()
            .map(|checked| key_of(&checked.queue));
        actors
            .filter(|actor| failing.contains(&actor.namespace))
            .for_each(|actor| self.failures.recheck_soon(&actor));
    }

    /// Once failures are no longer tolerated, the message count is no longer known.
    fn record_failed_reading(&self, actor: &Key, is_intolerable: bool) {
        if self.failures.record_uncounted(actor) || is_intolerable {
            self.record_depth(actor, None);
        }
    }

    /// Tolerates a missing count: a broker that has not counted yet, such as right after creation, has not failed. One
    /// that has stopped counting has not failed either, but its earlier count is no longer valid.
    fn record_reading(&self, actor: &Key, depth: Option<Depth>) {
        if depth.is_some() || self.failures.record_uncounted(actor) {
            self.record_depth(actor, depth);
        }
    }

    fn record_depth(&self, actor: &Key, depth: Option<Depth>) {
        if depth.is_some() {
            self.failures.record_counted(actor);
        }
        if self.depths.record(actor, depth) {
            self.source.enqueue_depth_change(actor);
        }
    }
}

fn actors_of(transports: &[TransportQueues]) -> HashSet<Key> {
    let queues = transports.iter().flat_map(|transport| &transport.queues);
    queues.map(|checked| key_of(&checked.queue)).collect()
}

/// Actors that are enqueued to check their queues again.
fn unpaused_actors(transport: &TransportQueues) -> HashSet<Key> {
    let unpaused = transport.queues.iter().filter(|checked| !checked.is_paused);
    unpaused.map(|checked| key_of(&checked.queue)).collect()
}

/// Sleeps for a random part of the interval, so that the operators of many clusters do not hit a shared broker at the
/// same time; forever if the interval is zero.
async fn initial_delay(interval: Duration) {
    if interval.is_zero() {
        return std::future::pending().await;
    }
    sleep(interval.mul_f64(fastrand::f64())).await;
}

fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * fastrand::f64())
}

fn key_of(queue: &ActorQueue) -> Key {
    Key::new(&queue.namespace, &queue.actor)
}

#[cfg(test)]
mod tests;
