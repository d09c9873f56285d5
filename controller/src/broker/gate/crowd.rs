//! Whether a broker is slow, and when those come again who were sent away for it (OPS-22). Pure: the clock is an
//! argument.

use std::time::Duration;

use tokio::time::Instant;

/// A broker whose calls take longer on average keeps passes waiting; below that, waiting costs less than coming again.
const SLOW: Duration = Duration::from_millis(250);
/// The shortest and the longest time after which one who was sent away comes again.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// So many come for each seat that becomes free: the broker is kept at work, although some seats become free early.
const FOR_EACH_SEAT: u32 = 2;

/// How a broker copes with those who come.
#[derive(Debug)]
pub struct Crowd {
    /// The duration of calls, the latest of which count most.
    average: Duration,
    /// How long a pass keeps its seat, likewise.
    stay: Duration,
    /// When the last of those who were sent away is to come.
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

    /// A call took so long.
    pub fn answered(&mut self, took: Duration) {
        self.average = (self.average * 3 + took) / 4;
    }

    pub fn is_slow(&self) -> bool {
        self.average > SLOW
    }

    /// A pass has given its seat back after so long.
    pub fn left(&mut self, stayed: Duration) {
        self.stay = (self.stay * 3 + stayed) / 4;
    }

    /// Answers when to come again: one after the other, as seats become free. Who came in vain each second would cost
    /// the actors of other brokers the processor.
    pub fn refused(&mut self, now: Instant, seats: usize) -> Duration {
        let seats = u32::try_from(seats).unwrap_or(u32::MAX).max(1);
        let between = self.stay.max(self.average) / seats / FOR_EACH_SEAT;
        let longest = now + LONGEST;
        self.last = (self.last.max(now + SHORTEST) + between).min(longest);
        let wait = self.last - now;
        if self.last == longest {
            // There is no end of them: spread, so that they do not come together.
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
    fn a_broker_is_slow_by_what_its_last_calls_took() {
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
    fn who_was_sent_away_comes_when_a_seat_can_be_expected_to_be_free() {
        let now = Instant::now();
        let mut crowd = Crowd::new(now);
        for _ in 0..40 {
            crowd.answered(2500 * MILLISECOND);
            crowd.left(5000 * MILLISECOND);
        }
        let waits: Vec<_> = (0..100).map(|_| crowd.refused(now, 10)).collect();
        assert!(waits.is_sorted(), "in turn: {waits:?}");
        assert!(waits[0] >= SHORTEST && waits[0] < SHORTEST * 3 / 2);
        // Ten seats for 5 s each: two seats a second, and two come for each.
        let last = waits[99].as_secs_f64();
        assert!((25.0..27.0).contains(&last), "{last}");

        let beyond: Vec<_> = (0..1000).map(|_| crowd.refused(now, 10)).collect();
        let far = beyond.iter().filter(|it| **it > LONGEST).count();
        assert!(far > 300, "spread: {far}");
        let longest = LONGEST.mul_f64(1.5);
        assert!(beyond.iter().all(|it| *it <= longest), "{beyond:?}");

        // The line is forgotten when its time has come.
        let later = now + 60_000 * MILLISECOND;
        assert!(crowd.refused(later, 10) < SHORTEST * 3 / 2);
    }
}
