//! Pauses between attempts to connect (SC-20).

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);
/// The longest pause when attempts have failed for [`LONG`].
const LONGEST_AFTER_LONG: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_mins(2);
/// A connection that lasted as long was a success.
const SERVICE: Duration = Duration::from_mins(1);

/// Doubling pauses with full jitter.
#[derive(Debug)]
pub struct Pauses {
    failing_since: Option<Instant>,
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            failing_since: None,
            next: FIRST,
        }
    }
}

impl Pauses {
    /// The pause before the next attempt, given how long the last connection was there.
    pub fn after(&mut self, service: Duration) -> Duration {
        if service >= SERVICE {
            *self = Self::default();
        }
        let now = Instant::now();
        let since = *self.failing_since.get_or_insert(now);
        let longest = if now - since >= LONG {
            LONGEST_AFTER_LONG
        } else {
            LONGEST
        };
        let pause = self.next.min(longest);
        self.next = (pause * 2).min(LONGEST_AFTER_LONG);
        // At least a quarter, so that no sidecar of many spins.
        pause.mul_f64(fastrand::f64().max(0.25))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FIRST, LONGEST, LONGEST_AFTER_LONG, Pauses};

    /// SC-20
    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_their_bounds_and_start_again_after_a_minute_of_service() {
        let mut pauses = Pauses::default();
        let mut bound = FIRST;
        let mut longest = Duration::ZERO;
        for _ in 0..12 {
            let pause = pauses.after(Duration::ZERO);
            assert!(pause >= bound / 4 && pause <= bound, "{pause:?}, {bound:?}");
            bound = (bound * 2).min(LONGEST);
            longest = longest.max(pause);
        }
        tokio::time::advance(Duration::from_mins(2)).await;
        for _ in 0..3 {
            pauses.after(Duration::ZERO);
        }
        assert!(pauses.next > LONGEST && pauses.next <= LONGEST_AFTER_LONG);
        assert!(pauses.after(Duration::from_secs(59)) > FIRST);
        assert!(pauses.after(Duration::from_mins(1)) <= FIRST);
    }
}
