//! How many messages the actors' queues hold, and which of it status tells (QUE-20).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Depth;
use crate::record::Key;
use crate::telemetry::metrics::Metrics;

/// Status follows no faster.
const PAUSE: Duration = Duration::from_mins(1);

/// The last reading of every actor's queue.
#[derive(Default)]
pub struct Depths {
    readings: Mutex<HashMap<Key, Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    /// As last read; `None` when that failed.
    now: Option<Depth>,
    /// What status is to tell, and since when.
    told: Option<Depth>,
    since: Instant,
}

/// What status is to tell of a queue's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// What it told before: nobody has looked since this process began.
    AsBefore,
    /// Nothing: they could not be read.
    Nothing,
    /// This.
    Depth(Depth),
}

impl Depths {
    /// Takes a reading, `None` for one that failed. Answers whether status is to tell another now.
    pub fn take(&self, actor: &Key, reading: Option<Depth>) -> bool {
        let now = Instant::now();
        let mut readings = self.lock();
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
        let tells = now - last.since >= PAUSE && is_news(last.told, reading);
        if tells {
            (last.told, last.since) = (reading, now);
        }
        tells
    }

    /// What status is to tell of an actor's queue.
    pub fn told(&self, actor: &Key) -> Told {
        match self.lock().get(actor).map(|reading| reading.told) {
            None => Told::AsBefore,
            Some(None) => Told::Nothing,
            Some(Some(depth)) => Told::Depth(depth),
        }
    }

    /// The actor has another queue, or is gone: what was read says nothing about it, nor about the next one of its name.
    pub fn forget(&self, actor: &Key) {
        self.lock().remove(actor);
    }

    fn all(&self) -> Vec<(Key, Depth)> {
        let readings = self.lock();
        let known = readings.iter();
        known
            .filter_map(|(key, reading)| Some((key.clone(), reading.now?)))
            .collect()
    }

    /// Shows the exact values to a scrape.
    pub fn show(&self, metrics: &Metrics) {
        let all = self.all();
        let messages = all
            .iter()
            .map(|(actor, depth)| (actor, depth.queued, depth.processing));
        metrics.queue_messages(messages);
    }

    /// Forgets every other actor.
    pub fn retain(&self, actors: &HashSet<Key>) {
        self.lock().retain(|key, _| actors.contains(key));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Reading>> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a change is worth a write: to or from nothing, or by a tenth.
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
