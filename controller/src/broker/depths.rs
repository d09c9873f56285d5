//! Message counts of the actors' queues, and which of them status reports (QUE-20).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Depth;
use crate::record::Key;
use crate::telemetry::metrics::Metrics;

/// Minimum time between two changes of an actor's count in status.
const PAUSE: Duration = Duration::from_mins(1);

/// The last reading of every actor's queue.
#[derive(Default)]
pub struct Depths {
    readings: Mutex<HashMap<Key, Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    /// Last reading; `None` if it failed.
    now: Option<Depth>,
    /// What status reports, and since when.
    told: Option<Depth>,
    since: Instant,
}

impl Reading {
    /// Whether status should report another reading now.
    fn reports(&self, reading: Option<Depth>, now: Instant) -> bool {
        now - self.since >= PAUSE && is_news(self.told, reading)
    }
}

/// What status should report about a queue's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedDepth {
    /// Leave status unchanged: there has been no reading since this process started.
    AsBefore,
    /// No count: it could not be read.
    Nothing,
    /// This count.
    Depth(Depth),
}

impl Depths {
    /// Records a reading, `None` for a failed one. Returns whether status must be updated.
    pub fn take(&self, actor: &Key, reading: Option<Depth>) -> bool {
        let now = Instant::now();
        let mut readings = self.readings.lock();
        let Some(last) = readings.get_mut(actor) else {
            let first = Reading {
                now: reading,
                told: reading,
                since: now,
            };
            readings.insert(actor.clone(), first);
            return true;
        };
        last.now = reading;
        let tells = last.reports(reading, now);
        if tells {
            (last.told, last.since) = (reading, now);
        }
        tells
    }

    /// What status should report once this reading is recorded; `anew`: earlier ones are dropped before.
    pub fn told_after(&self, actor: &Key, reading: Depth, anew: bool) -> ReportedDepth {
        let last = self.readings.lock().get(actor).copied();
        let last = last.filter(|_| !anew);
        let told = match last {
            Some(last) if !last.reports(Some(reading), Instant::now()) => last.told,
            _ => Some(reading),
        };
        told.map_or(ReportedDepth::Nothing, ReportedDepth::Depth)
    }

    /// What status should report for an actor's queue.
    pub fn told(&self, actor: &Key) -> ReportedDepth {
        match self.readings.lock().get(actor).map(|reading| reading.told) {
            None => ReportedDepth::AsBefore,
            Some(None) => ReportedDepth::Nothing,
            Some(Some(depth)) => ReportedDepth::Depth(depth),
        }
    }

    /// Drops the reading of an actor that was deleted or has another queue: it says nothing about that queue, nor about
    /// the next actor of that name.
    pub fn forget(&self, actor: &Key) {
        self.readings.lock().remove(actor);
    }

    fn all(&self) -> Vec<(Key, Depth)> {
        let readings = self.readings.lock();
        let known = readings.iter();
        known
            .filter_map(|(key, reading)| Some((key.clone(), reading.now?)))
            .collect()
    }

    /// Publishes the exact counts as metrics.
    pub fn show(&self, metrics: &Metrics) {
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
fn is_news(told: Option<Depth>, reading: Option<Depth>) -> bool {
    match (told, reading) {
        (Some(told), Some(reading)) => {
            has_moved(told.queued, reading.queued) || has_moved(told.processing, reading.processing)
        }
        (told, reading) => told != reading,
    }
}

fn has_moved(from: u64, to: u64) -> bool {
    from != to && (from == 0 || to == 0 || from.abs_diff(to) >= from.div_ceil(10))
}

#[cfg(test)]
mod tests;
