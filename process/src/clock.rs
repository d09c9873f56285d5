//! The wall clock, from which every time in a status and every age of an object is read.
//!
//! tokio's clock drives timers, and can be paused. A simulation that pauses it replaces this one too, or deadlines
//! measured by the wall clock would never pass.

use std::sync::OnceLock;

use jiff::Timestamp;

static REPLACEMENT: OnceLock<fn() -> Timestamp> = OnceLock::new();

/// The current time.
pub fn now() -> Timestamp {
    REPLACEMENT.get().map_or_else(Timestamp::now, |now| now())
}

/// Replaces the clock of this process; only the first call has an effect.
pub fn replace(now: fn() -> Timestamp) {
    let _ = REPLACEMENT.set(now);
}
