//! The latency of each state, printed as one table at the end.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{LIMIT, Reported};

/// In the order of the specification.
const STATES: [&str; 17] = [
    "Creating",
    "Running",
    "Napping",
    "Updating",
    "ScalingUp",
    "ScalingDown",
    "Degraded",
    "Terminating",
    "PendingResources",
    "ConfigError",
    "VolumeError",
    "ImagePullError",
    "RuntimeError",
    "SidecarError",
    "WorkloadError",
    "TransportError",
    "ScalingError",
];

static TABLE: Mutex<Table> = Mutex::new(Table {
    rows: Vec::new(),
    ended: Vec::new(),
});

struct Table {
    rows: Vec<(Reported, &'static str, Duration)>,
    ended: Vec<&'static str>,
}

/// Records a latency.
///
/// # Panics
/// If it exceeds the limit.
pub(super) fn enter(reported: Reported, why: &'static str, latency: Duration) {
    eprintln!(
        "{}, {}: reported {latency:?} after {why}",
        reported.state, reported.reason
    );
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    table.rows.push((reported, why, latency));
    drop(table);
    assert!(
        latency <= LIMIT,
        "{} ({why}) was reported after {latency:?}",
        reported.state
    );
}

/// Marks the end of a state's scenario, regardless of its result; the last one prints the table.
pub(super) struct Ended(&'static str);

impl Ended {
    pub(super) fn of(state: &'static str) -> Self {
        assert!(STATES.contains(&state), "{state} is no state");
        Self(state)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        table.ended.push(self.0);
        if STATES.iter().all(|state| table.ended.contains(state)) {
            // Written directly, because the test harness captures `eprintln!`.
            let _ = std::io::stderr().write_all(table.text().as_bytes());
        }
    }
}

impl Table {
    fn text(&self) -> String {
        let header = format!("\n{:<17} {:<25} {:>7}  cause\n", "STATUS", "REASON", "MS");
        let of_state = |state| {
            self.rows
                .iter()
                .filter(move |(reported, ..)| reported.state == state)
        };
        let rows = STATES.into_iter().flat_map(of_state);
        let lines = rows.map(|(reported, why, latency)| {
            let (Reported { state, reason, .. }, latency) = (reported, latency.as_millis());
            format!("{state:<17} {reason:<25} {latency:>7}  {why}\n")
        });
        let worst = self.rows.iter().map(|(.., latency)| *latency).max();
        let worst = format!("the longest: {:?}\n", worst.unwrap_or_default());
        [header].into_iter().chain(lines).chain([worst]).collect()
    }
}
