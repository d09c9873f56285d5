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

/// The last known depth of every actor's queue.
#[derive(Default)]
pub struct Depths {
    depths: Mutex<HashMap<Key, LastDepth>>,
}

#[derive(Clone, Copy)]
struct LastDepth {
    /// Last depth; `None` if it could not be read.
    latest: Option<Depth>,
    /// The count that status reports, and since when.
    reported: Option<Depth>,
    since: Instant,
}

impl LastDepth {
    /// Whether status should report another depth now.
    fn reports(&self, depth: Option<Depth>, now: Instant) -> bool {
        now - self.since >= MIN_REPORT_INTERVAL && is_worth_reporting(self.reported, depth)
    }
}

/// Message count that status should report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedDepth {
    /// Leave status unchanged: the depth has not been read since this process started.
    Unchanged,
    /// No count, because it could not be read.
    Unknown,
    /// This count.
    Depth(Depth),
}

impl Depths {
    /// Records a depth, `None` if it could not be read. Returns whether status must be updated.
    pub fn record(&self, actor: &Key, depth: Option<Depth>) -> bool {
        let now = Instant::now();
        let mut depths = self.depths.lock();
        let Some(last) = depths.get_mut(actor) else {
            let first = LastDepth {
                latest: depth,
                reported: depth,
                since: now,
            };
            depths.insert(actor.clone(), first);
            return true;
        };
        last.latest = depth;
        let must_report = last.reports(depth, now);
        if must_report {
            (last.reported, last.since) = (depth, now);
        }
        must_report
    }

    /// The count that status should report once `depth` is recorded; `reset` discards earlier counts first.
    pub fn reported_after(&self, actor: &Key, depth: Depth, reset: bool) -> ReportedDepth {
        let last = self.depths.lock().get(actor).copied();
        let last = last.filter(|_| !reset);
        let reported = match last {
            Some(last) if !last.reports(Some(depth), Instant::now()) => last.reported,
            _ => Some(depth),
        };
        reported.map_or(ReportedDepth::Unknown, ReportedDepth::Depth)
    }

    /// The count that status should report for an actor's queue.
    pub fn reported(&self, actor: &Key) -> ReportedDepth {
        match self.depths.lock().get(actor).map(|last| last.reported) {
            None => ReportedDepth::Unchanged,
            Some(None) => ReportedDepth::Unknown,
            Some(Some(depth)) => ReportedDepth::Depth(depth),
        }
    }

    /// Drops the depth of an actor that was deleted or has another queue: it does not apply to that queue, nor to the
    /// next actor of that name.
    pub fn forget(&self, actor: &Key) {
        self.depths.lock().remove(actor);
    }

    fn all(&self) -> Vec<(Key, Depth)> {
        let depths = self.depths.lock();
        let known = depths.iter();
        known
            .filter_map(|(key, last)| Some((key.clone(), last.latest?)))
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

    /// Drops the depths of all other actors.
    pub fn retain(&self, actors: &HashSet<Key>) {
        self.depths.lock().retain(|key, _| actors.contains(key));
    }
}

/// Whether a change is worth a status write: to or from zero or unknown, or by at least a tenth.
fn is_worth_reporting(reported: Option<Depth>, latest: Option<Depth>) -> bool {
    match (reported, latest) {
        (Some(reported), Some(latest)) => {
            differs_significantly(reported.queued, latest.queued)
                || differs_significantly(reported.processing, latest.processing)
        }
        (reported, latest) => reported != latest,
    }
}

fn differs_significantly(from: u64, to: u64) -> bool {
    from != to && (from == 0 || to == 0 || from.abs_diff(to) >= from.div_ceil(10))
}

#[cfg(test)]
mod tests;
