//! Whether a broker is slow, and when reconciles that were turned away retry (OPS-22). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Average call duration above which reconciles are turned away instead of waiting. Below it, waiting costs less than a
/// requeue.
const SLOW: Duration = Duration::from_millis(250);
/// Shortest and longest retry delay, before jitter.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Retries planned for each seat that becomes free: keeps the broker busy even if some seats become free early.
const FOR_EACH_SEAT: u32 = 2;

/// A broker's load, and the reconciles turned away from it.
#[derive(Debug)]
pub struct Crowd {
    /// Moving average of call durations.
    average: Duration,
    /// Moving average of how long a reconcile keeps its seat.
    stay: Duration,
    /// When the last retry is due.
    last: Instant,
}

impl Crowd {
    pub fn new(now: Instant) -> Self {
        Self {
            average: Duration::ZERO,
            stay: Duration::ZERO,
            last: now,
        }
    }

    /// Records the duration of a call.
    pub fn answered(&mut self, took: Duration) {
        self.average = (self.average * 3 + took) / 4;
    }

    pub fn is_slow(&self) -> bool {
        self.average > SLOW
    }

    /// Records how long a reconcile kept its seat.
    pub fn left(&mut self, stayed: Duration) {
        self.stay = (self.stay * 3 + stayed) / 4;
    }

    /// Returns the retry delay: one reconcile after another, as seats become free. Futile retries every second would
    /// take CPU from the actors of other brokers.
    pub fn refused(&mut self, now: Instant, seats: usize) -> Duration {
        let seats = u32::try_from(seats).unwrap_or(u32::MAX).max(1);
        let between = self.stay.max(self.average) / seats / FOR_EACH_SEAT;
        let longest = now + LONGEST;
        self.last = (self.last.max(now + SHORTEST) + between).min(longest);
        let wait = self.last - now;
        if self.last == longest {
            // The line is full: spread the retries, so that they do not all come at once.
            wait.mul_f64(0.5 + fastrand::f64())
        } else {
            wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// OPS-22
    #[test]
    fn broker_is_slow_by_its_recent_call_durations() {
        let mut crowd = Crowd::new(Instant::now());
        assert!(!crowd.is_slow(), "nothing is known yet");
        crowd.answered(900 * MILLISECOND);
        assert!(!crowd.is_slow(), "one call tells little");
        crowd.answered(900 * MILLISECOND);
        assert!(crowd.is_slow());
        for _ in 0..5 {
            crowd.answered(20 * MILLISECOND);
        }
        assert!(!crowd.is_slow(), "it has recovered");
    }

    /// OPS-22
    #[test]
    fn rejected_reconciles_retry_as_seats_become_free() {
        let now = Instant::now();
        let mut crowd = Crowd::new(now);
        for _ in 0..40 {
            crowd.answered(2500 * MILLISECOND);
            crowd.left(5000 * MILLISECOND);
        }
        let waits: Vec<_> = (0..100).map(|_| crowd.refused(now, 10)).collect();
        assert!(waits.is_sorted(), "in turn: {waits:?}");
        assert!(waits[0] >= SHORTEST && waits[0] < SHORTEST * 3 / 2);
        // Ten seats, each taken for 5 s: two become free per second, with two retries each.
        let last = waits[99].as_secs_f64();
        assert!((25.0..27.0).contains(&last), "{last}");

        let beyond: Vec<_> = (0..1000).map(|_| crowd.refused(now, 10)).collect();
        let far = beyond.iter().filter(|it| **it > LONGEST).count();
        assert!(far > 300, "spread: {far}");
        let longest = LONGEST.mul_f64(1.5);
        assert!(beyond.iter().all(|it| *it <= longest), "{beyond:?}");

        // The line is empty once its last retry is due.
        let later = now + 60_000 * MILLISECOND;
        assert!(crowd.refused(later, 10) < SHORTEST * 3 / 2);
    }
}
