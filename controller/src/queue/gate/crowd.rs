//! Whether a broker is slow, and when those come again who were sent away for it (OPS-22). Pure: the clock is an
//! argument.

use std::time::Duration;

use tokio::time::Instant;

/// A broker whose calls take longer on average keeps passes waiting; below that, waiting costs less than coming again.
const SLOW: Duration = Duration::from_millis(250);
/// The shortest and the longest time after which one who was sent away comes again.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// How often that time is adjusted.
const WINDOW: Duration = Duration::from_secs(1);

/// How a broker copes with those who come.
#[derive(Debug)]
pub struct Crowd {
    /// The duration of calls, the latest of which count most.
    average: Duration,
    delay: Duration,
    window: Instant,
    entered: u32,
    refused: u32,
}

impl Crowd {
    pub fn new(now: Instant) -> Self {
        Self {
            average: Duration::ZERO,
            delay: SHORTEST,
            window: now,
            entered: 0,
            refused: 0,
        }
    }

    /// A call took so long.
    pub fn answered(&mut self, took: Duration) {
        self.average = (self.average * 3 + took) / 4;
    }

    pub fn is_slow(&self) -> bool {
        self.average > SLOW
    }

    pub fn entered(&mut self, now: Instant) {
        self.turn(now);
        self.entered += 1;
    }

    /// Answers when to come again. Two are to come for each that can be let in: enough to keep the broker at work, and
    /// no crowd that keeps us at work for nothing.
    pub fn refused(&mut self, now: Instant) -> Duration {
        self.turn(now);
        self.refused += 1;
        self.delay.mul_f64(0.5 + fastrand::f64())
    }

    fn turn(&mut self, now: Instant) {
        if now - self.window < WINDOW {
            return;
        }
        self.delay = if self.refused > 2 * self.entered {
            (self.delay * 3 / 2).min(LONGEST)
        } else {
            (self.delay * 2 / 3).max(SHORTEST)
        };
        (self.window, self.entered, self.refused) = (now, 0, 0);
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
    fn who_was_sent_away_comes_again_the_later_the_more_come_in_vain() {
        let began = Instant::now();
        let mut crowd = Crowd::new(began);
        let second = |number: u32| began + number * WINDOW;
        let between = |delay: Duration, least: u64, most: u64| {
            assert!(
                delay >= Duration::from_millis(least) && delay <= Duration::from_millis(most),
                "{delay:?}"
            );
        };
        between(crowd.refused(second(0)), 500, 1500);
        for number in 1..60 {
            for _ in 0..10 {
                crowd.refused(second(number));
            }
        }
        between(crowd.refused(second(60)), 15_000, 45_000);
        for number in 61..120 {
            crowd.entered(second(number));
            crowd.refused(second(number));
        }
        between(crowd.refused(second(120)), 500, 1500);
    }
}
