//! Timestamps as status stores them.

use k8s_openapi::jiff::Timestamp;

/// Truncates to the resolution of timestamps in status, so that a value survives being stored and read again.
pub fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
