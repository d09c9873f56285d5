//! Message counts of the actors' queues, and which counts status reports (QUE-20).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Depth;
use crate::record::Key;
use crate::telemetry::metrics::Metrics;

/// Minimum time between two changes of an actor's count in status.
const MIN_REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// The last reading of every actor's queue.
#[derive(Default)]
pub struct Depths {
    readings: Mutex<HashMap<Key, Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    /// Last reading; `None` if it failed.
    latest: Option<Depth>,
    /// The count that status reports, and since when.
    reported: Option<Depth>,
    since: Instant,
}

impl Reading {
    /// Whether status should report another reading now.
    fn reports(&self, reading: Option<Depth>, now: Instant) -> bool {
        now - self.since >= MIN_REPORT_INTERVAL && is_worth_reporting(self.reported, reading)
    }
}

/// Message count that status should report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedDepth {
    /// Leave status unchanged: there has been no reading since this process started.
    Unchanged,
    /// No count, because it could not be read.
    Unknown,
    /// This count.
    Depth(Depth),
}

impl Depths {
    /// Records a reading, `None` for a failed one. Returns whether status must be updated.
    pub fn record(&self, actor: &Key, reading: Option<Depth>) -> bool {
        let now = Instant::now();
        let mut readings = self.readings.lock();
        let Some(last) = readings.get_mut(actor) else {
            let first = Reading {
                latest: reading,
                reported: reading,
                since: now,
            };
            readings.insert(actor.clone(), first);
            return true;
        };
        last.latest = reading;
        let must_report = last.reports(reading, now);
        if must_report {
            (last.reported, last.since) = (reading, now);
        }
        must_report
    }

    /// The count that status should report once this reading is recorded; `reset` discards earlier readings first.
    pub fn reported_after(&self, actor: &Key, reading: Depth, reset: bool) -> ReportedDepth {
        let last = self.readings.lock().get(actor).copied();
        let last = last.filter(|_| !reset);
        let reported = match last {
            Some(last) if !last.reports(Some(reading), Instant::now()) => last.reported,
            _ => Some(reading),
        };
        reported.map_or(ReportedDepth::Unknown, ReportedDepth::Depth)
    }

    /// The count that status should report for an actor's queue.
    pub fn reported(&self, actor: &Key) -> ReportedDepth {
        match self
            .readings
            .lock()
            .get(actor)
            .map(|reading| reading.reported)
        {
            None => ReportedDepth::Unchanged,
            Some(None) => ReportedDepth::Unknown,
            Some(Some(depth)) => ReportedDepth::Depth(depth),
        }
    }

    /// Drops the reading of an actor that was deleted or has another queue: it does not apply to that queue, nor to the
    /// next actor of that name.
    pub fn forget(&self, actor: &Key) {
        self.readings.lock().remove(actor);
    }

    fn all(&self) -> Vec<(Key, Depth)> {
        let readings = self.readings.lock();
        let known = readings.iter();
        known
            .filter_map(|(key, reading)| Some((key.clone(), reading.latest?)))
            .collect()
    }

    /// Publishes the exact counts as metrics.
    pub fn publish(&self, metrics: &Metrics) {
        let all = self.all();
        let messages = all
            .iter()
            .map(|(actor, depth)| (actor, depth.queued, depth.processing));
        metrics.queue_messages(messages);
    }

    /// Drops the readings of all other actors.
    pub fn retain(&self, actors: &HashSet<Key>) {
        self.readings.lock().retain(|key, _| actors.contains(key));
    }
}

/// Whether a change is worth a status write: to or from zero or unknown, or by at least a tenth.
fn is_worth_reporting(reported: Option<Depth>, reading: Option<Depth>) -> bool {
    match (reported, reading) {
        (Some(reported), Some(reading)) => {
            differs_significantly(reported.queued, reading.queued)
                || differs_significantly(reported.processing, reading.processing)
        }
        (reported, reading) => reported != reading,
    }
}

fn differs_significantly(from: u64, to: u64) -> bool {
    from != to && (from == 0 || to == 0 || from.abs_diff(to) >= from.div_ceil(10))
}

#[cfg(test)]
mod tests;
