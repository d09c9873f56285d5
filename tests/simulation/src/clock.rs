//! The wall clock of a simulation: it begins at the same moment in every run, and advances with tokio's paused clock.

use std::cell::Cell;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z
const BEGINNING: i64 = 1_767_225_600;

thread_local! {
    static STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts the clock of the simulation that runs on this thread.
pub fn start() {
    STARTED.set(Some(Instant::now()));
    asya_controller::clock::replace(now);
}

/// Time since the simulation began.
#[must_use]
pub fn elapsed() -> Duration {
    STARTED
        .get()
        .map(|started| started.elapsed())
        .unwrap_or_default()
}

/// The current time. Outside a simulation it stands still.
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
