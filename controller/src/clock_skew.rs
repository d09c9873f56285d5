//! Times that another clock may have written: another replica's, or this one's before it was set.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How far the clock that wrote a time may be ahead of this one.
pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Truncates to the resolution of timestamps in status, so that a value survives being stored and read again.
pub fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns how much of a wait is left, at most `longest`, which its rule never exceeds; `None` if it is over. A wait
/// that ends much later was written by a clock that was ahead, and counts as over: otherwise it would last until this
/// clock has caught up.
pub fn time_left(until: Timestamp, longest: Duration, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(until.duration_since(now)).ok()?;
    let skew = Duration::try_from(MAX_CLOCK_SKEW).unwrap_or_default();
    (!left.is_zero() && left <= longest.saturating_add(skew)).then(|| left.min(longest))
}

/// Whether a recorded time may have passed: one that is much later was written by a clock that was ahead.
pub fn may_have_passed(time: Timestamp, now: Timestamp) -> bool {
    time.duration_since(now) <= MAX_CLOCK_SKEW
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SAFE-43
    #[test]
    fn wait_takes_no_longer_than_its_rule_allows() {
        let longest = Duration::from_mins(5);
        for (until, expected) in [
            (-1, None),
            (0, None),
            (1, Some(1)),
            (300, Some(300)),
            (301, Some(300)),
            (600, Some(300)),
            (601, None),
            (86_400, None),
        ] {
            let [now, until] = [0, until].map(|second| Timestamp::from_second(second).unwrap());
            let expected = expected.map(Duration::from_secs);
            assert_eq!(time_left(until, longest, now), expected, "{until}");
        }
        assert_eq!(time_left(Timestamp::MAX, longest, Timestamp::MIN), None);
    }
}
