//! Confirms that queues are empty: where the broker's counts lag, it takes two observations (RMQ-6).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A first observation expires after this many times the lag.
const MAX_AGE_FACTOR: u32 = 6;

/// When queues were first observed empty, and for which generation of their actors.
pub struct EmptyConfirmations {
    lag: Duration,
    empty_since: Mutex<HashMap<String, (i64, Instant)>>,
}

impl EmptyConfirmations {
    /// For a broker whose counts lag behind by this much.
    pub fn new(lag: Duration) -> Self {
        Self {
            lag,
            empty_since: Mutex::default(),
        }
    }

    /// Records that the queue appears empty. Returns how long until another observation confirms it; `None` if this one
    /// does. Another `generation` of the actor starts over: in between, the queue may have been in use again.
    pub fn observe_empty(&self, queue: &str, generation: i64) -> Option<Duration> {
        let now = Instant::now();
        let mut empty_since = self.empty_since.lock();
        empty_since.retain(|_, (_, first)| now - *first <= self.lag * MAX_AGE_FACTOR);
        let entry = empty_since.entry(queue.to_owned());
        let (observed_for, first) = entry.or_insert((generation, now));
        if *observed_for != generation {
            (*observed_for, *first) = (generation, now);
        }
        let first = *first;
        let remaining = self.lag.saturating_sub(now - first);
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Resets a queue that is not empty, or is deleted.
    pub fn forget(&self, queue: &str) {
        let mut empty_since = self.empty_since.lock();
        empty_since.remove(queue);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// RMQ-6, QUE-13
    #[tokio::test(start_paused = true)]
    async fn queue_counts_as_empty_after_two_spaced_observations() {
        let seconds = Duration::from_secs;
        let confirmations = EmptyConfirmations::new(seconds(10));
        assert_eq!(confirmations.observe_empty("q", 1), Some(seconds(10)));
        sleep(seconds(4)).await;
        assert_eq!(confirmations.observe_empty("q", 1), Some(seconds(6)));
        assert_eq!(confirmations.observe_empty("other", 1), Some(seconds(10)));
        sleep(seconds(6)).await;
        assert_eq!(confirmations.observe_empty("q", 1), None);
        assert_eq!(
            confirmations.observe_empty("q", 1),
            None,
            "the deletion may have failed"
        );
        confirmations.forget("q");
        assert_eq!(
            confirmations.observe_empty("q", 1),
            Some(seconds(10)),
            "a message arrived in between"
        );
        sleep(seconds(61)).await;
        assert_eq!(
            confirmations.observe_empty("q", 1),
            Some(seconds(10)),
            "the first observation has expired"
        );
        sleep(seconds(10)).await;
        assert_eq!(
            confirmations.observe_empty("q", 2),
            Some(seconds(10)),
            "the actor may have used the queue in between"
        );
        sleep(seconds(10)).await;
        assert_eq!(confirmations.observe_empty("q", 2), None);
    }
}
