//! Timestamp arithmetic that saturates instead of overflowing.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Returns `moment` plus `wait`, saturating.
pub fn after(moment: Timestamp, wait: Duration) -> Timestamp {
    moment.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Returns `moment` minus `ahead`, saturating.
pub fn before(moment: Timestamp, ahead: Duration) -> Timestamp {
    moment.checked_sub(ahead).unwrap_or(Timestamp::MIN)
}

/// Returns the time between two moments; 0 if `to` is not later than `from`.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    let difference: SignedDuration = to.duration_since(from);
    Duration::try_from(difference).unwrap_or_default()
}
