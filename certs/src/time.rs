//! Timestamp arithmetic that saturates instead of overflowing.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Returns `time` plus `duration`, saturating.
pub fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns `time` minus `duration`, saturating.
pub fn before(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// Returns the time between two timestamps; 0 if `to` is not later than `from`.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    let difference: SignedDuration = to.duration_since(from);
    Duration::try_from(difference).unwrap_or_default()
}
