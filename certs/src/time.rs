//! Moments and how far they are apart, without overflow.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// `moment`, so much later.
pub fn after(moment: Timestamp, wait: Duration) -> Timestamp {
    moment.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// `moment`, so much earlier.
pub fn before(moment: Timestamp, ahead: Duration) -> Timestamp {
    moment.checked_sub(ahead).unwrap_or(Timestamp::MIN)
}

/// How long it is from one moment to a later one; 0 when that is no later.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    let difference: SignedDuration = to.duration_since(from);
    Duration::try_from(difference).unwrap_or_default()
}
