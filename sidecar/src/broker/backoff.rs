//! Backoff between connection attempts (SC-20).

use std::time::Duration;

use tokio::time::Instant;

const INITIAL_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(5);
/// The cap once attempts have been failing for [`OUTAGE_AFTER`].
const MAX_DELAY_OF_OUTAGE: Duration = Duration::from_secs(30);
const OUTAGE_AFTER: Duration = Duration::from_mins(2);
/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_mins(1);

/// Exponential backoff with full jitter.
#[derive(Debug)]
pub struct ReconnectBackoff {
    failing_since: Option<Instant>,
    next: Duration,
}

impl Default for ReconnectBackoff {
    fn default() -> Self {
        Self {
            failing_since: None,
            next: INITIAL_DELAY,
        }
    }
}

impl ReconnectBackoff {
    /// The delay before the next attempt. `uptime` is how long the last connection lasted; zero if it was never
    /// established.
    pub fn after(&mut self, uptime: Duration) -> Duration {
        if uptime >= STABLE_AFTER {
            *self = Self::default();
        } else if uptime >= MAX_DELAY {
            // A broker that keeps accepting connections is not in an outage, even if they break. Connections that end
            // immediately do not count: that is how a missing queue shows.
            self.failing_since = None;
        }
        let now = Instant::now();
        let since = *self.failing_since.get_or_insert(now);
        let max_delay = if now - since >= OUTAGE_AFTER {
            MAX_DELAY_OF_OUTAGE
        } else {
            MAX_DELAY
        };
        let delay = self.next.min(max_delay);
        self.next = (delay * 2).min(MAX_DELAY_OF_OUTAGE);
        // At least a quarter, so that no sidecar reconnects in a tight loop.
        delay.mul_f64(fastrand::f64().max(0.25))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{INITIAL_DELAY, MAX_DELAY, MAX_DELAY_OF_OUTAGE, ReconnectBackoff};

    /// SC-20
    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_a_cap_and_reset_after_a_minute_of_uptime() {
        let mut backoff = ReconnectBackoff::default();
        let mut bound = INITIAL_DELAY;
        let mut max_delay = Duration::ZERO;
        for _ in 0..12 {
            let delay = backoff.after(Duration::ZERO);
            assert!(delay >= bound / 4 && delay <= bound, "{delay:?}, {bound:?}");
            bound = (bound * 2).min(MAX_DELAY);
            max_delay = max_delay.max(delay);
        }
        tokio::time::advance(Duration::from_mins(2)).await;
        for _ in 0..3 {
            backoff.after(Duration::ZERO);
        }
        assert!(backoff.next > MAX_DELAY && backoff.next <= MAX_DELAY_OF_OUTAGE);
        assert!(backoff.after(Duration::from_secs(59)) > INITIAL_DELAY);
        assert!(backoff.after(Duration::from_mins(1)) <= INITIAL_DELAY);
    }

    /// SC-20: consuming resumes within 6 s of each loss.
    #[tokio::test(start_paused = true)]
    async fn frequent_connection_losses_do_not_increase_the_delay() {
        let mut backoff = ReconnectBackoff::default();
        for _ in 0..20 {
            let uptime = Duration::from_secs(15);
            tokio::time::advance(uptime).await;
            assert!(backoff.after(uptime) <= MAX_DELAY);
            assert!(backoff.after(Duration::ZERO) <= MAX_DELAY);
        }
    }
}
