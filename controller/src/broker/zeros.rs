//! Queues that looked empty once: where the broker's counts lag, twice is believed (RMQ-6).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A look so many times older than the lag says nothing about now.
const OLD: u32 = 6;

/// When queues were first seen empty.
pub struct EmptyConfirmations {
    lag: Duration,
    seen: Mutex<HashMap<String, Instant>>,
}

impl EmptyConfirmations {
    /// For a broker whose counts lag this much behind.
    pub fn new(lag: Duration) -> Self {
        Self {
            lag,
            seen: Mutex::default(),
        }
    }

    /// The queue looks empty. Answers how long until another such look will be believed; `None` if this
    /// one is.
    pub fn again(&self, queue: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, first| now - *first <= self.lag * OLD);
        let first = *seen.entry(queue.to_owned()).or_insert(now);
        let left = self.lag.saturating_sub(now - first);
        if left.is_zero() {
            seen.remove(queue);
            return None;
        }
        Some(left)
    }

    /// The queue is not empty.
    pub fn forget(&self, queue: &str) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.remove(queue);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// RMQ-6
    #[tokio::test(start_paused = true)]
    async fn a_queue_is_empty_when_it_is_seen_so_twice_at_a_distance() {
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
