//! The health check: surveys all actors' queues on its own schedule, so that reconciles need not (QUE-20 to QUE-22,
//! FW-33). It changes nothing itself: it enqueues the actors whose queues need a reconcile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asya_shared::config::Transport;
use asya_shared::transport::QueueOf;
use futures::future::{BoxFuture, join, join_all};
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::{debug, info};

use super::depths::Depths;
use super::{BrokerError, Count, Depth, QueueCheck, QueueObservation};
use crate::record::Key;

/// Queues per transport that get their mark after one check. After an upgrade none has it; marking all at once would be
/// throttled and reported as a broker fault (QUE-35).
const MARKED_PER_CHECK: usize = 500;

/// The queues to check on one transport.
#[derive(Clone)]
pub struct OnTransport {
    pub transport: Transport,
    /// Managed queues of actors that are not being deleted.
    pub queues: Vec<Checked>,
}

/// A queue to check.
#[derive(Clone)]
pub struct Checked {
    pub queue: QueueOf,
    /// Whether its actor has replicas: then its messages are counted more often.
    pub at_work: bool,
    /// Whether findings lead to action: not for a paused actor.
    pub kept: bool,
}

/// What is wrong with a queue that was verified before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It no longer exists.
    Vanished,
    /// It no longer matches what is wanted.
    Changed,
    /// The broker did not report its state.
    Unknown(BrokerError),
}

/// What the health check needs from the rest of the operator.
pub trait Actors: Send + Sync {
    /// All queues to check now.
    fn queues(&self) -> Vec<OnTransport>;
    /// Enqueues an actor whose queue is not what was verified: the reconcile must observe the queue itself.
    fn verify_again(&self, actor: &Key, finding: &Finding);
    /// Enqueues an actor whose queue a count did not find, unless a reconcile is about to look for it already.
    fn is_missing(&self, actor: &Key);
    /// Enqueues an actor whose status should report another depth.
    fn tell_depth(&self, actor: &Key);
}

/// One result per queue.
pub type Answers<T> = Vec<(QueueOf, Result<T, BrokerError>)>;

/// Queries many queues of a transport at once; results come in any order.
pub trait Surveyor: Send + Sync {
    /// Returns the state of the queues.
    fn survey<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<QueueObservation>>;

    /// Returns the message counts of the queues.
    fn depths<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Count>>;
}

/// Check intervals; zero disables a check.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Full check of all queues.
    pub check: Duration,
    /// Message count of queues whose actors have replicas.
    pub count: Duration,
}

/// Runs the health check.
pub struct HealthPass<A, S> {
    pub actors: A,
    pub brokers: S,
    /// Receives the counts.
    pub depths: Arc<Depths>,
    pub schedule: Schedule,
}

impl<A: Actors, S: Surveyor> HealthPass<A, S> {
    /// Runs until it is dropped, when the lease ends.
    pub async fn run(&self) {
        join(self.check_all_along(), self.count_all_along()).await;
    }

    async fn check_all_along(&self) {
        first(self.schedule.check).await;
        loop {
            self.check().await;
            next(self.schedule.check).await;
        }
    }

    async fn count_all_along(&self) {
        first(self.schedule.count).await;
        loop {
            self.count().await;
            next(self.schedule.count).await;
        }
    }

    /// Checks all queues once; no transport waits for another.
    pub async fn check(&self) {
        let all = self.actors.queues();
        let actors: HashSet<Key> = all
            .iter()
            .flat_map(|on| on.queues.iter().map(|checked| key_of(&checked.queue)))
            .collect();
        self.depths.retain(&actors);
        join_all(all.iter().map(|on| self.check_transport(on))).await;
    }

    async fn check_transport(&self, on: &OnTransport) {
        let queues = on.queues.iter().map(|checked| checked.queue.clone());
        let kept = kept(on);
        let seen = self.brokers.survey(&on.transport, queues.collect()).await;
        let mut marks = MARKED_PER_CHECK;
        for (queue, seen) in seen {
            let actor = key_of(&queue);
            match seen {
                Err(BrokerError::Busy(_) | BrokerError::Fenced(_)) => {}
                Err(error) => {
                    debug!(%actor, %error, "cannot check the queue");
                    self.read(&actor, None);
                    if kept.contains(&actor) {
                        self.actors.verify_again(&actor, &Finding::Unknown(error));
                    }
                }
                Ok(seen) => {
                    self.counted(&actor, seen.depth);
                    if !kept.contains(&actor) {
                        continue;
                    }
                    if seen.standing == QueueCheck::Unmarked {
                        if marks == 0 {
                            continue;
                        }
                        marks -= 1;
                    }
                    self.judge(&actor, &queue, &seen.standing);
                }
            }
        }
    }

    fn judge(&self, actor: &Key, queue: &QueueOf, standing: &QueueCheck) {
        let finding = match standing {
            QueueCheck::Serves(_) => return,
            QueueCheck::Absent => {
                let queue = &*queue.names.queue;
                info!(%actor, queue, "Queue missing, triggering reconciliation");
                Finding::Vanished
            }
            QueueCheck::Drifted | QueueCheck::Unmarked | QueueCheck::Differs { .. } => {
                Finding::Changed
            }
        };
        self.actors.verify_again(actor, &finding);
    }

    /// Counts the messages of all queues at work once.
    pub async fn count(&self) {
        let all = self.actors.queues();
        join_all(all.iter().map(|on| self.count_transport(on))).await;
    }

    async fn count_transport(&self, on: &OnTransport) {
        let at_work = on.queues.iter().filter(|checked| checked.at_work);
        let queues: Vec<QueueOf> = at_work.map(|checked| checked.queue.clone()).collect();
        let kept = kept(on);
        if queues.is_empty() {
            return;
        }
        for (queue, count) in self.brokers.depths(&on.transport, queues).await {
            let actor = key_of(&queue);
            match count {
                Ok(Count::Unknown) | Err(BrokerError::Busy(_) | BrokerError::Fenced(_)) => {}
                Ok(Count::Messages(depth)) => self.counted(&actor, Some(depth)),
                Ok(Count::Absent) if kept.contains(&actor) => self.actors.is_missing(&actor),
                Ok(Count::Absent) | Err(_) => self.read(&actor, None),
            }
        }
    }

    /// A broker that has no count yet, such as right after a queue was created, has not failed.
    fn counted(&self, actor: &Key, depth: Option<Depth>) {
        if depth.is_some() {
            self.read(actor, depth);
        }
    }

    fn read(&self, actor: &Key, depth: Option<Depth>) {
        if self.depths.take(actor, depth) {
            self.actors.tell_depth(actor);
        }
    }
}

/// Actors for whose queues findings lead to action.
fn kept(on: &OnTransport) -> HashSet<Key> {
    let kept = on.queues.iter().filter(|checked| checked.kept);
    kept.map(|checked| key_of(&checked.queue)).collect()
}

/// Sleeps for a random part of the interval, so that the operators of many clusters do not hit a shared broker at the
/// same time; forever if the interval is zero.
async fn first(interval: Duration) {
    if interval.is_zero() {
        return std::future::pending().await;
    }
    sleep(interval.mul_f64(fastrand::f64())).await;
}

async fn next(interval: Duration) {
    sleep(interval.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
}

fn key_of(queue: &QueueOf) -> Key {
    Key::new(&queue.namespace, &queue.actor)
}

/// Actors whose queue may not match status, so that its last verification no longer counts (QUE-8).
#[derive(Default)]
pub struct QueueRechecks {
    actors: Mutex<HashMap<Key, Doubt>>,
    raised: AtomicU64,
}

/// Position in the order of raised findings, taken when a reconcile starts to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

struct Doubt {
    finding: Finding,
    raised: Moment,
    /// Consecutive reconciles that the broker did not answer.
    failures: u32,
}

impl QueueRechecks {
    /// Makes the next reconcile observe the queue itself.
    pub fn raise(&self, actor: &Key, finding: Finding) {
        let mut actors = self.actors.lock();
        let failures = actors.get(actor).map_or(0, |doubt| doubt.failures);
        let raised = Moment(self.raised.fetch_add(1, Ordering::Relaxed) + 1);
        let doubt = Doubt {
            finding,
            raised,
            failures,
        };
        actors.insert(actor.clone(), doubt);
    }

    /// The current moment, for [`settle`](Self::settle).
    pub fn now(&self) -> Moment {
        Moment(self.raised.load(Ordering::Relaxed))
    }

    /// The open finding about an actor's queue.
    pub fn about(&self, actor: &Key) -> Option<Finding> {
        self.actors
            .lock()
            .get(actor)
            .map(|doubt| doubt.finding.clone())
    }

    /// How many reconciles in a row the broker did not answer.
    pub fn failures(&self, actor: &Key) -> u32 {
        self.actors
            .lock()
            .get(actor)
            .map_or(0, |doubt| doubt.failures)
    }

    /// Records that the broker did not answer a reconcile (QUE-10).
    pub fn unanswered(&self, actor: &Key, error: &BrokerError) {
        let mut actors = self.actors.lock();
        let doubt = actors.entry(actor.clone()).or_insert_with(|| Doubt {
            finding: Finding::Unknown(error.clone()),
            raised: self.now(),
            failures: 0,
        });
        doubt.failures += 1;
    }

    /// Records that a reconcile that began then found the queue serving. A finding raised since needs another look.
    pub fn settle(&self, actor: &Key, began: Moment) {
        let mut actors = self.actors.lock();
        match actors.get_mut(actor) {
            Some(doubt) if doubt.raised > began => doubt.failures = 0,
            Some(_) => drop(actors.remove(actor)),
            None => {}
        }
    }

    /// Drops a deleted actor.
    pub fn forget(&self, actor: &Key) {
        self.actors.lock().remove(actor);
    }
}

#[cfg(test)]
mod tests;
