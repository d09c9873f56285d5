//! Whether a broker is slow, and when rejected reconciles retry (OPS-22). Pure: the clock is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Average call duration above which reconciles are rejected instead of waiting. Below it, waiting costs less than a
/// requeue.
const SLOW: Duration = Duration::from_millis(250);
/// Shortest and longest retry delay, before jitter.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Retries scheduled per returned permit: keeps the broker busy even if some permits are returned early.
const RETRIES_PER_PERMIT: u32 = 2;

/// A broker's load, and the retries of the reconciles that were rejected.
#[derive(Debug)]
pub struct BrokerLoad {
    /// Moving average of call durations.
    average: Duration,
    /// Moving average of how long a reconcile holds its permit.
    hold_time: Duration,
    /// When the last retry is due.
    last: Instant,
}

impl BrokerLoad {
    pub fn new(now: Instant) -> Self {
        Self {
            average: Duration::ZERO,
            hold_time: Duration::ZERO,
            last: now,
        }
    }

    pub fn record_call(&mut self, duration: Duration) {
        self.average = (self.average * 3 + duration) / 4;
    }

    pub fn is_slow(&self) -> bool {
        self.average > SLOW
    }

    /// Records how long a reconcile held its permit.
    pub fn record_hold(&mut self, held: Duration) {
        self.hold_time = (self.hold_time * 3 + held) / 4;
    }

    /// Returns the retry delay. Spaces retries as permits are returned: futile retries every second would take CPU from
    /// the actors of other brokers.
    pub fn next_retry_delay(&mut self, now: Instant, permits: usize) -> Duration {
        let permits = u32::try_from(permits).unwrap_or(u32::MAX).max(1);
        let interval = self.hold_time.max(self.average) / permits / RETRIES_PER_PERMIT;
        let longest = now + MAX_RETRY_DELAY;
        self.last = (self.last.max(now + MIN_RETRY_DELAY) + interval).min(longest);
        let wait = self.last - now;
        if self.last == longest {
            // The schedule is full: add jitter, so that the retries do not arrive at the same time.
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
        let mut load = BrokerLoad::new(Instant::now());
        assert!(!load.is_slow(), "nothing is known yet");
        load.record_call(900 * MILLISECOND);
        assert!(!load.is_slow(), "one slow call is not enough");
        load.record_call(900 * MILLISECOND);
        assert!(load.is_slow());
        for _ in 0..5 {
            load.record_call(20 * MILLISECOND);
        }
        assert!(!load.is_slow(), "it has recovered");
    }

    /// OPS-22
    #[test]
    fn rejected_reconciles_retry_as_permits_are_returned() {
        let now = Instant::now();
        let mut load = BrokerLoad::new(now);
        for _ in 0..40 {
            load.record_call(2500 * MILLISECOND);
            load.record_hold(5000 * MILLISECOND);
        }
        let waits: Vec<_> = (0..100).map(|_| load.next_retry_delay(now, 10)).collect();
        assert!(waits.is_sorted(), "in order: {waits:?}");
        assert!(waits[0] >= MIN_RETRY_DELAY && waits[0] < MIN_RETRY_DELAY * 3 / 2);
        // Ten permits, each held for 5 s: two are returned per second, with two retries each.
        let last = waits[99].as_secs_f64();
        assert!((25.0..27.0).contains(&last), "{last}");

        let beyond: Vec<_> = (0..1000).map(|_| load.next_retry_delay(now, 10)).collect();
        let far = beyond
            .iter()
            .filter(|wait| **wait > MAX_RETRY_DELAY)
            .count();
        assert!(far > 300, "spread: {far}");
        let longest = MAX_RETRY_DELAY.mul_f64(1.5);
        assert!(beyond.iter().all(|wait| *wait <= longest), "{beyond:?}");

        // The schedule is empty once its last retry is due.
        let later = now + 60_000 * MILLISECOND;
        assert!(load.next_retry_delay(later, 10) < MIN_RETRY_DELAY * 3 / 2);
    }
}
