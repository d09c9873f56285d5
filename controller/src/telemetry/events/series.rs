//! Deduplicates Events: a repeated one is counted in a series, any other is a new Event (OPS-7).
//!
//! The note of an Event is immutable, so a new text is a new Event.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::EventReason;

/// A repetition within this time continues the series, as it does for Kubernetes' own components.
const SERIES: SignedDuration = SignedDuration::from_mins(6);

/// How many Event writes an actor may cause at once, …
const BURST: u32 = 25;

/// … plus one for each of these intervals, so that a fault whose text keeps changing causes no flood.
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// Below this many entries, ended ones are not swept.
const SWEEP: usize = 1024;

/// Identity of a series: the same actor, reason and text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// Uid of the actor, or of another object concerned.
    pub actor: Box<str>,
    pub note: EventReason,
    pub text: Box<str>,
}

/// How to write an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// As a new Event.
    First,
    /// By incrementing the count of an existing Event.
    Again {
        /// Name of that Event.
        name: String,
        /// Occurrences, this one included.
        count: i32,
    },
    /// Not at all: the actor has exhausted its budget.
    Silence,
}

/// Recent Events, and the remaining budget of each actor.
#[derive(Debug)]
pub struct Series {
    told: HashMap<Topic, Told>,
    budgets: HashMap<Box<str>, Budget>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Told {
    name: String,
    count: i32,
    last: Timestamp,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    refilled: Timestamp,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            told: HashMap::new(),
            budgets: HashMap::new(),
            sweep_at: SWEEP,
        }
    }
}

impl Series {
    /// Decides how to write `topic` at `now`; a new Event would be called `name`.
    pub fn next(&mut self, topic: &Topic, name: &str, now: Timestamp) -> Telling {
        if self.told.len().max(self.budgets.len()) >= self.sweep_at {
            self.sweep(now);
        }
        let budget = self.budgets.entry(topic.actor.clone());
        if !budget.or_insert_with(|| Budget::full(now)).take(now) {
            return Telling::Silence;
        }
        if let Some(told) = self.told.get_mut(topic).filter(|told| told.is_fresh(now)) {
            told.count = told.count.saturating_add(1);
            told.last = now;
            return Telling::Again {
                name: told.name.clone(),
                count: told.count,
            };
        }
        let told = Told {
            name: name.to_owned(),
            count: 1,
            last: now,
        };
        self.told.insert(topic.clone(), told);
        Telling::First
    }

    /// Restarts a series whose Event was deleted, with the new Event `name`.
    pub fn begin_anew(&mut self, topic: &Topic, name: &str) {
        if let Some(told) = self.told.get_mut(topic) {
            name.clone_into(&mut told.name);
            told.count = 1;
        }
    }

    /// Forgets a series whose write failed, so that the next occurrence is a new Event.
    pub fn forget(&mut self, topic: &Topic) {
        self.told.remove(topic);
    }

    fn sweep(&mut self, now: Timestamp) {
        self.told.retain(|_, told| told.is_fresh(now));
        self.budgets.retain(|_, budget| !budget.is_full(now));
        self.sweep_at = SWEEP.max(2 * self.told.len().max(self.budgets.len()));
    }
}

impl Told {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) < SERIES
    }
}

impl Budget {
    fn full(now: Timestamp) -> Self {
        Self {
            left: BURST,
            refilled: now,
        }
    }

    fn take(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    fn refill(&mut self, now: Timestamp) {
        while self.left < BURST && now.duration_since(self.refilled) >= REFILL {
            self.left += 1;
            self.refilled = self.refilled.checked_add(REFILL).unwrap_or(now);
        }
        if self.left == BURST {
            self.refilled = now;
        }
    }

    fn is_full(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        self.left == BURST
    }
}

#[cfg(test)]
mod tests;
