//! The health pass: looks at all actors' queues on its own schedule, so that passes need not
//! (QUE-20 to QUE-22, FW-33). It changes nothing: what it finds is a pass's business.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asya_shared::config::Transport;
use asya_shared::transport::QueueOf;
use futures::future::{BoxFuture, join, join_all};
use tokio::time::sleep;
use tracing::{debug, info};

use super::depths::Depths;
use super::{BrokerError, Count, Depth, Seen, Standing};
use crate::record::Key;

/// So many queues of a transport get their mark after one check: after an upgrade none has it, and all at once would
/// be throttled, and told as a fault of the broker (QUE-35).
const MARKED_PER_CHECK: usize = 500;

/// The queues that are to be looked at, on one transport.
#[derive(Clone)]
pub struct OnTransport {
    /// The transport.
    pub transport: Transport,
    /// Queues of actors that do not go, where queues are managed.
    pub queues: Vec<Checked>,
}

/// A queue that is to be looked at.
#[derive(Clone)]
pub struct Checked {
    /// The queue.
    pub queue: QueueOf,
    /// Whether its actor has replicas: then its messages are counted more often.
    pub at_work: bool,
    /// Whether anything would be done about it: nothing is for an actor that is paused.
    pub kept: bool,
}

/// What is wrong with a queue that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is gone.
    Vanished,
    /// It is not as it was made.
    Changed,
    /// The broker does not say.
    Unknown(BrokerError),
}

/// What the health pass needs of the rest of the operator.
pub trait Actors: Send + Sync {
    /// Every queue that is to be looked at now.
    fn queues(&self) -> Vec<OnTransport>;
    /// An actor's queue is not what it was verified to be: a pass must look itself.
    fn verify_again(&self, actor: &Key, finding: &Finding);
    /// A count found no queue: a pass must look, unless one is about to look for it already.
    fn is_missing(&self, actor: &Key);
    /// An actor's status is to tell another depth.
    fn tell_depth(&self, actor: &Key);
}

/// What is said of each of many queues.
pub type Answers<T> = Vec<(QueueOf, Result<T, BrokerError>)>;

/// Looks at many queues of a transport at once; answers in any order.
pub trait Surveyor: Send + Sync {
    /// How they stand.
    fn survey<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Seen>>;

    /// Their messages.
    fn depths<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Count>>;
}

/// How often queues are looked at; zero is never.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// All of them, whole.
    pub check: Duration,
    /// The messages of those at work.
    pub count: Duration,
}

/// The health pass.
pub struct HealthPass<A, S> {
    /// Whose queues they are.
    pub actors: A,
    /// The brokers.
    pub brokers: S,
    /// Where counts go.
    pub depths: Arc<Depths>,
    /// When.
    pub schedule: Schedule,
}

impl<A: Actors, S: Surveyor> HealthPass<A, S> {
    /// Runs until it is dropped, which is when the lease ends.
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

    /// Looks at all queues once; no transport waits for another.
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
                    debug!(%actor, %error, "queue not seen");
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
                    if seen.standing == Standing::Unmarked {
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

    fn judge(&self, actor: &Key, queue: &QueueOf, standing: &Standing) {
        let finding = match standing {
            Standing::Serves(_) => return,
            Standing::Absent => {
                let queue = &*queue.names.queue;
                info!(%actor, queue, "Queue missing, triggering reconciliation");
                Finding::Vanished
            }
            Standing::Drifted | Standing::Unmarked | Standing::Differs { .. } => Finding::Changed,
        };
        self.actors.verify_again(actor, &finding);
    }

    /// Counts the messages of queues at work once.
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

    /// A broker that has not counted yet, as after a queue was made, has not failed.
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

/// The actors for whose queues something would be done.
fn kept(on: &OnTransport) -> HashSet<Key> {
    let kept = on.queues.iter().filter(|checked| checked.kept);
    kept.map(|checked| key_of(&checked.queue)).collect()
}

/// Somewhere in the first interval, so that the replicas of many clusters do not meet at their brokers;
/// for ever where there is none.
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

/// Actors whose queue is not what status says: what was verified counts no longer (QUE-8).
#[derive(Default)]
pub struct QueueRechecks {
    actors: Mutex<HashMap<Key, Doubt>>,
    raised: AtomicU64,
}

/// What had been raised when somebody began to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

struct Doubt {
    finding: Finding,
    raised: Moment,
    /// Passes in a row that the broker did not answer.
    failures: u32,
}

impl QueueRechecks {
    /// From now on a pass must look itself.
    pub fn raise(&self, actor: &Key, finding: Finding) {
        let mut actors = self.lock();
        let failures = actors.get(actor).map_or(0, |doubt| doubt.failures);
        let raised = Moment(self.raised.fetch_add(1, Ordering::Relaxed) + 1);
        let doubt = Doubt {
            finding,
            raised,
            failures,
        };
        actors.insert(actor.clone(), doubt);
    }

    /// Now, for [`settle`](Self::settle).
    pub fn now(&self) -> Moment {
        Moment(self.raised.load(Ordering::Relaxed))
    }

    /// What was found at the queue of an actor.
    pub fn about(&self, actor: &Key) -> Option<Finding> {
        self.lock().get(actor).map(|doubt| doubt.finding.clone())
    }

    /// A pass looked, and the broker did not answer. Answers how often in a row (QUE-10).
    pub fn unanswered(&self, actor: &Key, error: &BrokerError) -> u32 {
        let mut actors = self.lock();
        let doubt = actors.entry(actor.clone()).or_insert_with(|| Doubt {
            finding: Finding::Unknown(error.clone()),
            raised: self.now(),
            failures: 0,
        });
        doubt.failures += 1;
        doubt.failures
    }

    /// A pass that began then has looked, and the queue serves; what was raised since needs another look.
    pub fn settle(&self, actor: &Key, began: Moment) {
        let mut actors = self.lock();
        match actors.get_mut(actor) {
            Some(doubt) if doubt.raised > began => doubt.failures = 0,
            Some(_) => drop(actors.remove(actor)),
            None => {}
        }
    }

    /// The actor is gone.
    pub fn forget(&self, actor: &Key) {
        self.lock().remove(actor);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Doubt>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
