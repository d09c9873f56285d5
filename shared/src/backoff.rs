//! Retry delays that double.

use std::time::Duration;

/// Delays that double with each failure, up to a limit.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Delays from `first` to `max`.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// The delay after this many retries: `first` for 0.
    #[must_use]
    pub fn after(self, retries: u32) -> Duration {
        let factor = 1u32.checked_shl(retries).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Duration};

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        for (retries, seconds) in [
            (0, 1),
            (1, 2),
            (4, 16),
            (5, 30),
            (31, 30),
            (32, 30),
            (u32::MAX, 30),
        ] {
            assert_eq!(
                backoff.after(retries),
                Duration::from_secs(seconds),
                "{retries}"
            );
        }
    }
}
