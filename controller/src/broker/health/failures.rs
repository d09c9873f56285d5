//! Queues that could not be checked or counted, and how often in a row. One list serves all queues of a transport, so
//! one request that fails must not make all their actors query the broker and write status (QUE-20, QUE-10).

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::broker::BrokerError;
use crate::record::Key;

/// Consecutive failures after which counts are removed and actors query the broker themselves.
const THRESHOLD: u32 = 3;

/// The queues that could not be read, by actor.
#[derive(Default)]
pub struct CheckFailures {
    actors: Mutex<HashMap<Key, ActorFailures>>,
    /// Consecutive readings without a count, failed or not. One that did not fail is no reason to read again sooner.
    uncounted: Mutex<HashMap<Key, u32>>,
}

#[derive(Default)]
struct ActorFailures {
    /// Checks that failed in a row.
    checks: u32,
    /// Counts that failed in a row.
    counts: u32,
    /// Whether the actor has been enqueued or is paused, so that the next regular check is soon enough.
    is_handled: bool,
}

impl CheckFailures {
    /// Records a failed check. Returns whether the failures are no longer tolerated.
    pub fn record_check(&self, actor: &Key, error: &BrokerError) -> bool {
        self.record(actor, error, |failure| &mut failure.checks)
    }

    /// Records a failed count. Returns whether the failures are no longer tolerated.
    pub fn record_count(&self, actor: &Key, error: &BrokerError) -> bool {
        self.record(actor, error, |failure| &mut failure.counts)
    }

    fn record(
        &self,
        actor: &Key,
        error: &BrokerError,
        kind: fn(&mut ActorFailures) -> &mut u32,
    ) -> bool {
        let mut actors = self.actors.lock();
        let failure = actors.entry(actor.clone()).or_default();
        // Nothing was read, and enough trials of the broker have failed.
        if matches!(error, BrokerError::Outage { .. }) {
            return true;
        }
        let count = kind(failure);
        *count = count.saturating_add(1);
        failure.checks.saturating_add(failure.counts) >= THRESHOLD
    }

    /// Records that the same fault may concern a queue that was not read.
    pub fn recheck_soon(&self, actor: &Key) {
        self.actors.lock().entry(actor.clone()).or_default();
    }

    /// Records that the actor of a failure that is no longer tolerated has been enqueued, or is paused.
    pub fn record_handled(&self, actor: &Key) {
        if let Some(failure) = self.actors.lock().get_mut(actor) {
            failure.is_handled = true;
        }
    }

    /// Records that the queue was checked.
    pub fn clear(&self, actor: &Key) {
        self.actors.lock().remove(actor);
    }

    /// Records that the messages were counted. This does not clear a failed check: only a check reads whose queue it
    /// is, and it needs permissions that a count does not.
    pub fn clear_counts(&self, actor: &Key) {
        let mut actors = self.actors.lock();
        match actors.get_mut(actor) {
            Some(failure) if failure.checks > 0 => failure.counts = 0,
            _ => {
                actors.remove(actor);
            }
        }
    }

    /// Records a reading without a count. Returns whether the last count is too old to be reported.
    pub fn record_uncounted(&self, actor: &Key) -> bool {
        let mut uncounted = self.uncounted.lock();
        let readings = uncounted.entry(actor.clone()).or_default();
        *readings = readings.saturating_add(1);
        *readings >= THRESHOLD
    }

    pub fn record_counted(&self, actor: &Key) {
        self.uncounted.lock().remove(actor);
    }

    /// Whether any queue could not be read.
    pub fn is_empty(&self) -> bool {
        self.actors.lock().is_empty()
    }

    /// Whether to check the actor's queue again before the next regular check.
    pub fn is_repeated(&self, actor: &Key) -> bool {
        let actors = self.actors.lock();
        actors.get(actor).is_some_and(|failure| !failure.is_handled)
    }

    /// Drops all other actors.
    pub fn retain(&self, known: &HashSet<Key>) {
        self.actors.lock().retain(|key, _| known.contains(key));
        self.uncounted.lock().retain(|key, _| known.contains(key));
    }
}
