//! Retries of failed runs.

use std::time::Duration;

use asya_shared::backoff::Backoff;

/// When a failed run is retried (FW-6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Delays, with a jitter so that keys that failed together do not retry together.
    pub backoff: Backoff,
    /// Retries after which only an event starts the next run; 0 = unlimited.
    pub attempts: u32,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new(Backoff::new(Duration::from_secs(1), Duration::from_mins(5)))
    }
}

impl RetryPolicy {
    /// Retries without limit, with these delays and the jitter of the queue.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff: backoff.with_jitter(0.2),
            attempts: 0,
        }
    }

    /// The delay after this many consecutive failures.
    pub(super) fn delay(&self, failures: u32) -> Duration {
        let retries = failures.saturating_sub(1);
        self.backoff.jittered(retries, fastrand::f64())
    }

    /// Whether a retry may follow this many consecutive failures.
    pub(super) fn allows(&self, failures: u32) -> bool {
        self.attempts == 0 || failures <= self.attempts
    }
}
