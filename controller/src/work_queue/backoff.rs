//! Retry delays of failed runs.

use std::time::Duration;

/// Delays that grow with each consecutive failure (FW-6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Factor for each further failure; less than 1 counts as 1.
    pub multiplier: f64,
    /// Longest delay.
    pub max: Duration,
    /// Retries after which only an event starts the next run; 0 = unlimited.
    pub attempts: u32,
    /// Fraction of a delay, 0 to 1, that jitter may subtract, so that keys that failed together do not retry together.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            multiplier: 2.0,
            max: Duration::from_mins(5),
            attempts: 0,
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// The delay after this many consecutive failures.
    pub(super) fn delay(&self, failures: u32) -> Duration {
        let doublings = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let max = self.max.as_secs_f64();
        let full = (self.initial.as_secs_f64() * self.multiplier.max(1.0).powi(doublings)).min(max);
        Duration::from_secs_f64(full * (1.0 - self.jitter.clamp(0.0, 1.0) * fastrand::f64()))
    }

    /// Whether a retry may follow this many consecutive failures.
    pub(super) fn allows(&self, failures: u32) -> bool {
        self.attempts == 0 || failures <= self.attempts
    }
}
