//! The actors whose queues the next reconcile must observe (QUE-8, QUE-10).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::BrokerError;
use crate::record::Key;

/// Problem of a queue that was verified before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecheckReason {
    /// It no longer exists.
    Missing,
    /// It no longer matches the desired state.
    Changed,
    /// The broker did not report its state.
    Unknown(BrokerError),
}

/// Actors whose queue might not match status, so that its last verification is no longer valid (QUE-8).
#[derive(Default)]
pub struct QueueRechecks {
    actors: Mutex<HashMap<Key, Recheck>>,
    last_sequence: AtomicU64,
}

/// Sequence number of a recheck request. A reconcile notes the last one before it observes the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecheckSequence(u64);

struct Recheck {
    reason: RecheckReason,
    requested: RecheckSequence,
    /// Consecutive reconciles without a response from the broker.
    failures: u32,
}

impl QueueRechecks {
    /// Makes the next reconcile observe the queue itself.
    pub fn request(&self, actor: &Key, reason: RecheckReason) {
        let mut actors = self.actors.lock();
        let failures = actors.get(actor).map_or(0, |recheck| recheck.failures);
        let requested = RecheckSequence(self.last_sequence.fetch_add(1, Ordering::Relaxed) + 1);
        let recheck = Recheck {
            reason,
            requested,
            failures,
        };
        actors.insert(actor.clone(), recheck);
    }

    /// The last sequence number, for [`clear`](Self::clear).
    pub fn last_sequence(&self) -> RecheckSequence {
        RecheckSequence(self.last_sequence.load(Ordering::Relaxed))
    }

    /// Why an actor's queue is to be checked again.
    pub fn reason(&self, actor: &Key) -> Option<RecheckReason> {
        self.actors
            .lock()
            .get(actor)
            .map(|recheck| recheck.reason.clone())
    }

    /// Number of consecutive reconciles without a response from the broker.
    pub fn failures(&self, actor: &Key) -> u32 {
        self.actors
            .lock()
            .get(actor)
            .map_or(0, |recheck| recheck.failures)
    }

    /// Records a reconcile without a response from the broker (QUE-10).
    pub fn record_failure(&self, actor: &Key, error: &BrokerError) {
        let mut actors = self.actors.lock();
        let recheck = actors.entry(actor.clone()).or_insert_with(|| Recheck {
            reason: RecheckReason::Unknown(error.clone()),
            requested: self.last_sequence(),
            failures: 0,
        });
        recheck.failures += 1;
    }

    /// Records that a reconcile that started at `started` found the queue ready. A newer request needs another recheck.
    pub fn clear(&self, actor: &Key, started: RecheckSequence) {
        let mut actors = self.actors.lock();
        match actors.get_mut(actor) {
            Some(recheck) if recheck.requested > started => recheck.failures = 0,
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
mod tests {
    use super::*;

    #[test]
    fn recheck_is_due_until_cleared() {
        let (rechecks, key) = (QueueRechecks::default(), Key::new("ns", "a"));
        assert_eq!(rechecks.reason(&key), None);
        rechecks.request(&key, RecheckReason::Missing);
        assert_eq!(rechecks.reason(&key), Some(RecheckReason::Missing));
        assert_eq!(rechecks.reason(&key), Some(RecheckReason::Missing));
        let started = rechecks.last_sequence();
        rechecks.request(&key, RecheckReason::Changed);
        rechecks.clear(&key, started);
        let newer = Some(RecheckReason::Changed);
        assert_eq!(
            rechecks.reason(&key),
            newer,
            "requested during the reconcile"
        );
        rechecks.clear(&key, rechecks.last_sequence());
        assert_eq!(rechecks.reason(&key), None);
    }
}
