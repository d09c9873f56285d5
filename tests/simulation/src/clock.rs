//! The wall clock of a simulation: it starts at the same moment in every run, and advances with tokio's paused clock.

use std::cell::Cell;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z
const BEGINNING: i64 = 1_767_225_600;

thread_local! {
    static WAS_WRONG: Cell<bool> = const { Cell::new(false) };
    static ERROR: Cell<i16> = const { Cell::new(0) };
    static STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts the clock of the simulation on this thread.
pub fn start() {
    STARTED.set(Some(Instant::now()));
    ERROR.set(0);
    WAS_WRONG.set(false);
    asya_process::clock::replace(|| now() + SignedDuration::from_secs(ERROR.get().into()));
}

/// Sets the skew: how many seconds the clocks of the operator's nodes are ahead of the API server's.
pub fn set_error(seconds: i16) {
    ERROR.set(seconds);
    WAS_WRONG.set(true);
}

/// Whether there has ever been a skew.
#[must_use]
pub fn was_skewed() -> bool {
    WAS_WRONG.get()
}

/// Time since the simulation began.
#[must_use]
pub fn elapsed() -> Duration {
    STARTED
        .get()
        .map(|started| started.elapsed())
        .unwrap_or_default()
}

/// The current time, constant outside a simulation.
#[must_use]
pub fn now() -> Timestamp {
    let beginning = Timestamp::from_second(BEGINNING).unwrap_or_default();
    beginning + elapsed()
}

/// The current time as API objects show it, to the second.
#[must_use]
pub fn now_text() -> String {
    now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
