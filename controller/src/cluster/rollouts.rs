//! Limits concurrent rollouts of the operator's own workloads that a change of the installation, not of their actors,
//! causes: a new runtime script or sidecar image changes the pod templates of all actors at once (SAFE-36). An actor
//! that may roll out holds a slot, as a target does (`binding/rollout_slots.rs`).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::waiting_actors::WaitingActors;
use crate::record::Key;

/// A rollout that takes longer than this stops blocking others, because it may never complete.
const SLOT_TIMEOUT: Duration = Duration::from_mins(10);
/// Fallback requeue of a waiting actor, which is enqueued anyway as soon as a rollout completes.
pub const FALLBACK_REQUEUE: Duration = Duration::from_mins(5);

/// Rollouts in progress, and waiting actors.
#[derive(Debug)]
pub struct WorkloadRollouts {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// When each rollout stops counting against the limit.
    running: HashMap<Key, Instant>,
    waiting: WaitingActors,
}

impl WorkloadRollouts {
    /// Allows `limit` concurrent rollouts.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            inner: Mutex::default(),
        }
    }

    /// Whether the actor's workload may roll out now. If not, the actor is queued.
    pub fn begin(&self, actor: &Key) -> bool {
        let mut inner = self.inner.lock();
        if inner.running.contains_key(actor) {
            return true;
        }
        if self.free(&inner) == 0 {
            inner.waiting.push(actor);
            return false;
        }
        inner.waiting.remove(actor);
        inner.count(actor);
        true
    }

    /// Records the rollout state of an up-to-date workload: a rollout that this process did not start counts too, and a
    /// complete one no longer does.
    pub fn record_state(&self, actor: &Key, rolling: bool, complete: bool) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(actor);
        if rolling {
            inner.count(actor);
        } else if complete {
            inner.running.remove(actor);
        }
    }

    /// Drops an actor without a pending rollout.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(actor);
        inner.running.remove(actor);
    }

    /// Removes and returns the actors that have waited longest, one per free slot, to be enqueued now. If another actor
    /// takes a slot first, they wait again.
    pub fn dequeue_waiting(&self) -> Vec<Key> {
        let mut inner = self.inner.lock();
        if inner.waiting.is_empty() {
            return Vec::new();
        }
        let free = self.free(&inner);
        inner.waiting.take(free, |_| true)
    }

    fn free(&self, inner: &Inner) -> usize {
        let now = Instant::now();
        let active = inner.running.values().filter(|ends| **ends > now);
        self.limit.saturating_sub(active.count())
    }
}

impl Inner {
    fn count(&mut self, actor: &Key) {
        let ends = Instant::now() + SLOT_TIMEOUT;
        self.running.entry(actor.clone()).or_insert(ends);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SLOT_TIMEOUT, WorkloadRollouts};
    use crate::record::Key;

    fn keys<const N: usize>() -> [Key; N] {
        std::array::from_fn(|number| Key::new("ns", &format!("a{number}")))
    }

    /// SAFE-36
    #[tokio::test(start_paused = true)]
    async fn waiting_actors_are_dequeued_in_order_as_rollouts_complete() {
        let rollouts = WorkloadRollouts::new(2);
        let [a, b, c, d] = keys();
        assert!(rollouts.begin(&a) && rollouts.begin(&b) && rollouts.begin(&a));
        assert!(!rollouts.begin(&c) && !rollouts.begin(&d) && !rollouts.begin(&c));
        assert_eq!(rollouts.dequeue_waiting(), []);
        rollouts.record_state(&a, false, false);
        assert_eq!(rollouts.dequeue_waiting(), [], "its pods are not ready yet");
        rollouts.record_state(&a, false, true);
        assert_eq!(rollouts.dequeue_waiting(), [&c].map(Key::clone));
        assert!(rollouts.begin(&c) && !rollouts.begin(&d));
        rollouts.forget(&b);
        assert_eq!(rollouts.dequeue_waiting(), [&d].map(Key::clone));
        assert!(rollouts.begin(&d));
        assert_eq!(rollouts.dequeue_waiting(), [], "no actor is waiting");
    }

    /// SAFE-36
    #[tokio::test(start_paused = true)]
    async fn endless_rollout_stops_blocking_others() {
        let rollouts = WorkloadRollouts::new(1);
        let [stuck, next, last] = keys();
        assert!(rollouts.begin(&stuck) && !rollouts.begin(&next));
        tokio::time::advance(SLOT_TIMEOUT / 2).await;
        rollouts.record_state(&stuck, true, false);
        assert_eq!(rollouts.dequeue_waiting(), []);
        tokio::time::advance(SLOT_TIMEOUT / 2).await;
        rollouts.record_state(&stuck, true, false);
        assert_eq!(rollouts.dequeue_waiting(), [&next].map(Key::clone));
        assert!(rollouts.begin(&next) && !rollouts.begin(&last));
        assert!(
            rollouts.begin(&stuck),
            "its own next template does not have to wait"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!rollouts.begin(&last));
    }

    /// SAFE-36: a restarted controller does not know which rollouts it started.
    #[tokio::test(start_paused = true)]
    async fn rollouts_in_progress_at_startup_count() {
        let rollouts = WorkloadRollouts::new(1);
        let [running, other] = keys();
        rollouts.record_state(&running, true, false);
        assert!(!rollouts.begin(&other));
        rollouts.record_state(&running, false, true);
        assert_eq!(rollouts.dequeue_waiting(), [other]);
    }
}
