//! Limits how many of our workloads roll at a time when the installation changed rather than their actors: a new
//! runtime script or sidecar image changes the pod template of every actor at once (SAFE-36).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::record::Key;

/// A rollout that takes longer no longer blocks others, because it may never end.
const LONGEST: Duration = Duration::from_mins(10);
/// Fallback requeue of a waiting actor, which is enqueued anyway as soon as a rollout ends.
pub const AGAIN: Duration = Duration::from_mins(5);

/// The rollouts under way, and the actors that wait.
#[derive(Debug)]
pub struct WorkloadRollouts {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// When each rollout stops counting against the limit.
    running: HashMap<Key, Instant>,
    waiting: VecDeque<Key>,
}

impl WorkloadRollouts {
    /// Allows `most` rollouts at a time.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            inner: Mutex::default(),
        }
    }

    /// Whether the actor's workload may roll now. If not, the actor waits for its turn.
    pub fn begin(&self, actor: &Key) -> bool {
        let mut inner = self.inner.lock();
        if inner.running.contains_key(actor) {
            return true;
        }
        if self.free(&inner) == 0 {
            if !inner.waiting.contains(actor) {
                inner.waiting.push_back(actor.clone());
            }
            return false;
        }
        inner.leave(actor);
        inner.count(actor);
        true
    }

    /// Records the state of a workload that is as wanted: a rollout that this process did not begin counts too, and a
    /// settled one no longer does.
    pub fn saw(&self, actor: &Key, rolls: bool, settled: bool) {
        let mut inner = self.inner.lock();
        inner.leave(actor);
        if rolls {
            inner.count(actor);
        } else if settled {
            inner.running.remove(actor);
        }
    }

    /// Drops an actor that has nothing to roll any more.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        inner.leave(actor);
        inner.running.remove(actor);
    }

    /// Returns the actors that waited longest, as many as there are free slots, to be enqueued now. Another actor may
    /// take a slot first; then they wait again.
    pub fn invite(&self) -> Vec<Key> {
        let mut inner = self.inner.lock();
        if inner.waiting.is_empty() {
            return Vec::new();
        }
        let free = self.free(&inner).min(inner.waiting.len());
        inner.waiting.drain(..free).collect()
    }

    fn free(&self, inner: &Inner) -> usize {
        let now = Instant::now();
        let counts = inner.running.values().filter(|ends| **ends > now);
        self.most.saturating_sub(counts.count())
    }
}

impl Inner {
    fn count(&mut self, actor: &Key) {
        let ends = Instant::now() + LONGEST;
        self.running.entry(actor.clone()).or_insert(ends);
    }

    fn leave(&mut self, actor: &Key) {
        self.waiting.retain(|it| it != actor);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LONGEST, WorkloadRollouts};
    use crate::record::Key;

    fn keys<const N: usize>() -> [Key; N] {
        std::array::from_fn(|number| Key::new("ns", &format!("a{number}")))
    }

    /// SAFE-36
    #[tokio::test(start_paused = true)]
    async fn few_are_rolled_at_a_time_and_the_next_in_turn_is_invited() {
        let rollouts = WorkloadRollouts::new(2);
        let [a, b, c, d] = keys();
        assert!(rollouts.begin(&a) && rollouts.begin(&b) && rollouts.begin(&a));
        assert!(!rollouts.begin(&c) && !rollouts.begin(&d) && !rollouts.begin(&c));
        assert_eq!(rollouts.invite(), []);
        rollouts.saw(&a, false, false);
        assert_eq!(rollouts.invite(), [], "its pods are not ready yet");
        rollouts.saw(&a, false, true);
        assert_eq!(rollouts.invite(), [&c].map(Key::clone));
        assert!(rollouts.begin(&c) && !rollouts.begin(&d));
        rollouts.forget(&b);
        assert_eq!(rollouts.invite(), [&d].map(Key::clone));
        assert!(rollouts.begin(&d));
        assert_eq!(rollouts.invite(), [], "nobody waits any more");
    }

    /// SAFE-36
    #[tokio::test(start_paused = true)]
    async fn endless_rollout_stops_blocking_others() {
        let rollouts = WorkloadRollouts::new(1);
        let [stuck, next, last] = keys();
        assert!(rollouts.begin(&stuck) && !rollouts.begin(&next));
        tokio::time::advance(LONGEST / 2).await;
        rollouts.saw(&stuck, true, false);
        assert_eq!(rollouts.invite(), []);
        tokio::time::advance(LONGEST / 2).await;
        rollouts.saw(&stuck, true, false);
        assert_eq!(rollouts.invite(), [&next].map(Key::clone));
        assert!(rollouts.begin(&next) && !rollouts.begin(&last));
        assert!(
            rollouts.begin(&stuck),
            "its own next template waits for nobody"
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!rollouts.begin(&last));
    }

    /// SAFE-36: a restarted controller does not know who began which rollout.
    #[tokio::test(start_paused = true)]
    async fn rollouts_already_under_way_count() {
        let rollouts = WorkloadRollouts::new(1);
        let [found, other] = keys();
        rollouts.saw(&found, true, false);
        assert!(!rollouts.begin(&other));
        rollouts.saw(&found, false, true);
        assert_eq!(rollouts.invite(), [other]);
    }
}
