//! Queues that exist, or may exist, although no status has named them as verified (QUE-13). Otherwise, they would stay
//! at the broker forever if that status is lost, or if the actor changes its transport first. Their owner tag may be
//! missing, because it is written after the queue.

use std::collections::{HashMap, HashSet};

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::transport::ActorQueue;
use parking_lot::Mutex;

use super::BrokerError;
use crate::record::Key;

/// The queues, by actor.
#[derive(Debug, Default)]
pub struct UnrecordedQueues(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    queues: HashMap<Key, Vec<Unrecorded>>,
    /// Actors that this process has observed.
    observed: HashSet<Key>,
}

#[derive(Debug)]
struct Unrecorded {
    status: QueueStatus,
    created: ActorQueue,
    /// Whether it is the actor's: this process was about to create it, or has found it with the actor's tag. Otherwise
    /// an earlier process may have created it.
    confirmed: bool,
    failures: Failures,
}

/// How often the broker of a queue has failed to answer.
#[derive(Debug, Default)]
struct Failures {
    calls: u32,
    /// The last failed trial of the broker, if it is known; `None` once a call of the actor's own has failed, which may
    /// have been that trial.
    trial: Option<u32>,
}

impl Failures {
    /// Counts calls without an answer. While the circuit is open, none is made (QUE-9); but in an outage, a trial that
    /// another actor makes counts for all, so that many actors do not wait for three trials each.
    fn record(&mut self, error: &BrokerError) -> u32 {
        let is_call = match error {
            BrokerError::Outage { rounds, .. } => {
                let last = self.trial.replace(*rounds);
                last.is_some_and(|last| last != *rounds)
            }
            error if error.not_called_delay().is_some() => false,
            _ => {
                self.trial = None;
                true
            }
        };
        self.calls = self.calls.saturating_add(u32::from(is_call));
        self.calls
    }
}

impl UnrecordedQueues {
    /// Adds a queue that was found, or that is about to be created: a failed call may have created it nonetheless.
    pub fn add(&self, actor: &Key, status: QueueStatus, created: ActorQueue) {
        let mut inner = self.0.lock();
        let queues = inner.queues.entry(actor.clone()).or_default();
        queues.retain(|it| !it.status.is_same_queue(&status));
        queues.push(Unrecorded {
            status,
            created,
            confirmed: true,
            failures: Failures::default(),
        });
    }

    /// Adds, when an actor is observed for the first time, the queues that an earlier process may have created for it;
    /// `None` if its spec does not say which. Those that this process creates are added at their creation.
    pub fn add_maybe_created(
        &self,
        actor: &Key,
        possible: impl FnOnce() -> Option<Vec<(QueueStatus, ActorQueue)>>,
    ) {
        let mut inner = self.0.lock();
        if inner.observed.contains(actor) {
            return;
        }
        let Some(possible) = possible() else {
            return;
        };
        inner.observed.insert(actor.clone());
        for (status, created) in possible {
            let queues = inner.queues.entry(actor.clone()).or_default();
            queues.push(Unrecorded {
                status,
                created,
                confirmed: false,
                failures: Failures::default(),
            });
        }
    }

    /// The queues that are the actor's, as its status would name them.
    pub fn confirmed(&self, actor: &Key) -> Vec<QueueStatus> {
        self.matching(actor, |queue| queue.confirmed)
    }

    /// The queues of an actor that an earlier process may have created, as its status would name them.
    pub fn maybe_created_by(&self, actor: &Key) -> Vec<QueueStatus> {
        self.matching(actor, |queue| !queue.confirmed)
    }

    /// Records that a queue that may exist is the actor's.
    pub fn confirm(&self, actor: &Key, queue: &QueueStatus) {
        let mut inner = self.0.lock();
        let queues = inner.queues.get_mut(actor).into_iter().flatten();
        for it in queues.filter(|it| it.status.is_same_queue(queue)) {
            it.confirmed = true;
        }
    }

    /// Records an error of a queue's broker; returns how many calls it has failed to answer.
    pub fn record_failure(&self, actor: &Key, queue: &QueueStatus, error: &BrokerError) -> u32 {
        let mut inner = self.0.lock();
        let queues = inner.queues.get_mut(actor).into_iter().flatten();
        let unrecorded = queues.filter(|it| it.status.is_same_queue(queue)).last();
        unrecorded.map_or(u32::MAX, |it| it.failures.record(error))
    }

    fn matching(&self, actor: &Key, matches: impl Fn(&Unrecorded) -> bool) -> Vec<QueueStatus> {
        let inner = self.0.lock();
        let queues = inner.queues.get(actor).into_iter().flatten();
        let queues = queues.filter(|queue| matches(queue));
        queues.map(|queue| queue.status.clone()).collect()
    }

    /// The queue that was to be created as `queue`; `None` if a status named it as verified, or if it is not known
    /// here.
    pub fn created_as(&self, actor: &Key, queue: &QueueStatus) -> Option<ActorQueue> {
        let inner = self.0.lock();
        let mut queues = inner.queues.get(actor)?.iter();
        let unrecorded = queues.find(|it| it.status.is_same_queue(queue))?;
        Some(unrecorded.created.clone())
    }

    /// Drops the queue that `status`, which was stored, names as verified.
    pub fn remove_recorded(&self, actor: &Key, status: &AsyncActorStatus) {
        if let Some(verified) = &status.queue {
            self.remove(actor, verified);
        }
    }

    /// Drops a queue that is deleted, or not the actor's.
    pub fn remove(&self, actor: &Key, queue: &QueueStatus) {
        let mut inner = self.0.lock();
        let Some(queues) = inner.queues.get_mut(actor) else {
            return;
        };
        queues.retain(|it| !it.status.is_same_queue(queue));
        if queues.is_empty() {
            inner.queues.remove(actor);
        }
    }

    /// Drops all queues of an actor.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.0.lock();
        inner.queues.remove(actor);
        inner.observed.remove(actor);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_shared::api::{AsyncActorStatus, EffectiveTimeout, QueueStatus};
    use asya_shared::config::QueueNames;
    use asya_shared::transport::ActorQueue;

    use super::{Failures, UnrecordedQueues};
    use crate::broker::BrokerError;
    use crate::record::Key;

    fn queue(transport: &str) -> QueueStatus {
        QueueStatus {
            name: "asya-a".to_owned(),
            transport: transport.to_owned(),
            ..QueueStatus::default()
        }
    }

    fn created(transport: &str) -> ActorQueue {
        ActorQueue {
            names: QueueNames {
                queue: transport.to_owned(),
                dlq: None,
                actor: "a".to_owned(),
                happy_end: "happy-end".to_owned(),
                error_end: "error-end".to_owned(),
            },
            namespace: "team".to_owned(),
            actor: "a".to_owned(),
            uid: "uid".to_owned(),
            timeout: EffectiveTimeout {
                processing: None,
                graceful_shutdown: 30,
                progress: None,
            },
            adopts: None,
        }
    }

    /// QUE-13
    #[test]
    fn created_queue_is_known_until_a_status_names_it() {
        let (unrecorded, key) = (UnrecordedQueues::default(), Key::new("team", "a"));
        for transport in ["east", "west", "north", "west"] {
            unrecorded.add(&key, queue(transport), created(transport));
        }
        unrecorded.remove_recorded(
            &key,
            &AsyncActorStatus {
                queue: Some(queue("north")),
                retired_queues: vec![queue("east"), queue("south")],
                ..AsyncActorStatus::default()
            },
        );
        // A retired queue may lack its owner tag until it is deleted.
        assert_eq!(unrecorded.confirmed(&key), [queue("east"), queue("west")]);
        assert_eq!(unrecorded.confirmed(&Key::new("team", "b")), []);
        assert_eq!(
            unrecorded.created_as(&key, &queue("west")),
            Some(created("west"))
        );
        assert_eq!(unrecorded.created_as(&key, &queue("north")), None);
        unrecorded.remove(&key, &queue("east"));
        assert_eq!(unrecorded.confirmed(&key), [queue("west")]);
        unrecorded.forget(&key);
        assert_eq!(unrecorded.confirmed(&key), []);
    }

    /// QUE-13
    #[test]
    fn queues_of_an_earlier_process_are_added_once() {
        let (unrecorded, key) = (UnrecordedQueues::default(), Key::new("team", "a"));
        let possible = || {
            Some(vec![
                (queue("east"), created("east")),
                (queue("west"), created("west")),
                (queue("north"), created("north")),
            ])
        };
        unrecorded.add_maybe_created(&key, || None);
        unrecorded.add_maybe_created(&key, possible);
        unrecorded.add(&key, queue("west"), created("west"));
        assert_eq!(unrecorded.confirmed(&key), [queue("west")]);
        let maybe_created = [queue("east"), queue("north")];
        assert_eq!(unrecorded.maybe_created_by(&key), maybe_created);
        unrecorded.confirm(&key, &queue("north"));
        assert_eq!(unrecorded.confirmed(&key), [queue("north"), queue("west")]);
        unrecorded.remove(&key, &queue("east"));
        unrecorded.add_maybe_created(&key, possible);
        assert_eq!(unrecorded.maybe_created_by(&key), []);
        unrecorded.forget(&key);
        unrecorded.add_maybe_created(&key, possible);
        assert_eq!(unrecorded.maybe_created_by(&key).len(), 3);
    }

    /// QUE-13, QUE-9: what the open circuit returns is no call. In an outage, the trials of other actors count.
    #[test]
    fn only_calls_that_were_made_count_as_failures_of_the_broker() {
        let silent = || BrokerError::Unreachable("no answer".to_owned());
        let wait = Duration::from_secs(30);
        let open = || BrokerError::CircuitOpen(Box::new(silent()), wait);
        let busy = || BrokerError::TooManyCalls("later".to_owned());
        let outage = |rounds| BrokerError::Outage {
            last: Box::new(silent()),
            wait,
            rounds,
        };
        for (case, errors, expected) in [
            ("own calls", vec![silent(), silent(), silent()], 3),
            ("open", vec![open(), busy(), open()], 0),
            ("one trial", vec![outage(3), outage(3), outage(3)], 0),
            ("trials of others", vec![outage(3), outage(4), outage(7)], 2),
            ("own trial", vec![outage(3), silent(), outage(4)], 1),
            ("both", vec![silent(), outage(3), outage(4), outage(4)], 2),
        ] {
            let mut failures = Failures::default();
            let counted = errors.iter().map(|error| failures.record(error)).last();
            assert_eq!(counted, Some(expected), "{case}");
        }
    }
}
