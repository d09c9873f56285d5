//! Confirms that queues are empty: where the broker's counts lag, it takes two observations (RMQ-6).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A first observation older than this many times the lag no longer counts.
const OLD: u32 = 6;

/// When queues were first seen empty.
pub struct EmptyConfirmations {
    lag: Duration,
    seen: Mutex<HashMap<String, Instant>>,
}

impl EmptyConfirmations {
    /// For a broker whose counts lag behind by this much.
    pub fn new(lag: Duration) -> Self {
        Self {
            lag,
            seen: Mutex::default(),
        }
    }

    /// Records that the queue looks empty. Returns how long until another observation confirms it; `None` if this one
    /// does.
    pub fn again(&self, queue: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        seen.retain(|_, first| now - *first <= self.lag * OLD);
        let first = *seen.entry(queue.to_owned()).or_insert(now);
        let left = self.lag.saturating_sub(now - first);
        if left.is_zero() {
            seen.remove(queue);
            return None;
        }
        Some(left)
    }

    /// Resets a queue that is not empty.
    pub fn forget(&self, queue: &str) {
        let mut seen = self.seen.lock();
        seen.remove(queue);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// RMQ-6
    #[tokio::test(start_paused = true)]
    async fn queue_counts_as_empty_after_two_spaced_observations() {
        let seconds = Duration::from_secs;
        let zeros = EmptyConfirmations::new(seconds(10));
        assert_eq!(zeros.again("q"), Some(seconds(10)));
        sleep(seconds(4)).await;
        assert_eq!(zeros.again("q"), Some(seconds(6)));
        assert_eq!(zeros.again("other"), Some(seconds(10)));
        sleep(seconds(6)).await;
        assert_eq!(zeros.again("q"), None);
        assert_eq!(
            zeros.again("q"),
            Some(seconds(10)),
            "and then from the start"
        );
        sleep(seconds(10)).await;
        zeros.forget("q");
        assert_eq!(
            zeros.again("q"),
            Some(seconds(10)),
            "a message came between"
        );
        sleep(seconds(61)).await;
        assert_eq!(
            zeros.again("q"),
            Some(seconds(10)),
            "the first look is too old"
        );
    }
}
