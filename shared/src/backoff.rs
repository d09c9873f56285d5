//! Retry delays that grow.

use std::time::Duration;

/// Delays that grow with each failure, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    factor: f64,
    max: Duration,
    jitter: f64,
}

impl Backoff {
    /// Delays that double from `first` to `max`, without jitter.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            factor: 2.0,
            max,
            jitter: 0.0,
        }
    }

    /// Multiplies each delay by `factor` for the next; less than 1 counts as 1.
    #[must_use]
    pub const fn with_factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// Lets [`Self::jittered`] subtract up to this fraction of a delay, 0 to 1.
    #[must_use]
    pub const fn with_jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The longest delay after this many retries: `first` for 0.
    #[must_use]
    pub fn after(self, retries: u32) -> Duration {
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let grown = self.first.as_secs_f64() * self.factor.max(1.0).powi(retries);
        // Not `min` of the seconds: a limit must not be rounded.
        if grown < self.max.as_secs_f64() {
            Duration::from_secs_f64(grown)
        } else {
            self.max
        }
    }

    /// The delay after this many retries, shortened by jitter, so that clients that failed together do not retry
    /// together. `random` is from 0 to 1.
    #[must_use]
    pub fn jittered(self, retries: u32, random: f64) -> Duration {
        let subtracted = self.jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0);
        self.after(retries).mul_f64(1.0 - subtracted)
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Duration};

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

    #[test]
    fn delays_double_up_to_the_maximum() {
        for (retries, seconds) in [
            (0, 1),
            (1, 2),
            (4, 16),
            (5, 30),
            (31, 30),
            (32, 30),
            (u32::MAX, 30),
        ] {
            let delay = Duration::from_secs(seconds);
            assert_eq!(BACKOFF.after(retries), delay, "{retries}");
            assert_eq!(BACKOFF.jittered(retries, 0.7), delay, "{retries}");
        }
        let long = Backoff::new(Duration::from_mins(1), Duration::from_secs(30));
        assert_eq!(long.after(0), Duration::from_secs(30));
    }

    #[test]
    fn factor_below_one_shortens_no_delay() {
        for (factor, seconds) in [(3.0, 9), (1.0, 1), (0.5, 1), (f64::NAN, 1)] {
            let delay = BACKOFF.with_factor(factor).after(2);
            assert_eq!(delay, Duration::from_secs(seconds), "{factor}");
        }
    }

    #[test]
    fn jitter_subtracts_at_most_its_fraction() {
        for (jitter, random, millis) in [
            (0.2, 0.0, 4000),
            (0.2, 0.5, 3600),
            (0.2, 1.0, 3200),
            (1.0, 1.0, 0),
            (7.0, 7.0, 0),
        ] {
            let delay = BACKOFF.with_jitter(jitter).jittered(2, random);
            assert_eq!(
                delay.as_millis(),
                millis,
                "jitter {jitter}, random {random}"
            );
        }
    }
}
