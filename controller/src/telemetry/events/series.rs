//! Deduplicates Events: repetitions increment the count of a series (OPS-7).
//!
//! The note of an Event is immutable, so another text needs a new Event.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::EventReason;
use crate::clock_skew::may_have_passed;

/// A repetition within this time continues the series, as it does for Kubernetes' own components.
const SERIES: SignedDuration = SignedDuration::from_mins(6);

/// How many Event writes an actor may cause in a burst …
const BURST: u32 = 25;

/// … plus one per this interval, so that a fault with an ever-changing text cannot flood the API server.
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// Expired entries are swept only above this many entries.
const SWEEP: usize = 1024;

/// Identity of a series: the same actor, reason and text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesKey {
    /// Uid of the actor or another object.
    pub actor: Box<str>,
    pub reason: EventReason,
    pub text: Box<str>,
}

/// How to write an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// As a new Event.
    Create,
    /// By incrementing the count of an existing Event.
    Increment {
        name: String,
        /// Occurrences, including this one.
        count: i32,
    },
    /// Not at all: the actor has exhausted its budget.
    Drop,
}

/// Recent Events, and the remaining budget of each actor.
#[derive(Debug)]
pub struct EventSeries {
    recent: HashMap<SeriesKey, RecentEvent>,
    budgets: HashMap<Box<str>, Budget>,
    sweep_at: usize,
}

#[derive(Debug)]
struct RecentEvent {
    name: String,
    count: i32,
    last: Timestamp,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    refilled: Timestamp,
}

impl Default for EventSeries {
    fn default() -> Self {
        Self {
            recent: HashMap::new(),
            budgets: HashMap::new(),
            sweep_at: SWEEP,
        }
    }
}

impl EventSeries {
    /// Decides how to write an Event of the series at `now`; a new one would be called `name`.
    pub fn next(&mut self, key: &SeriesKey, name: &str, now: Timestamp) -> WriteDecision {
        if self.recent.len().max(self.budgets.len()) >= self.sweep_at {
            self.sweep(now);
        }
        let budget = self.budgets.entry(key.actor.clone());
        if !budget.or_insert_with(|| Budget::full(now)).take(now) {
            return WriteDecision::Drop;
        }
        if let Some(recent) = self
            .recent
            .get_mut(key)
            .filter(|recent| recent.is_fresh(now))
        {
            recent.count = recent.count.saturating_add(1);
            recent.last = now;
            return WriteDecision::Increment {
                name: recent.name.clone(),
                count: recent.count,
            };
        }
        let recent = RecentEvent {
            name: name.to_owned(),
            count: 1,
            last: now,
        };
        self.recent.insert(key.clone(), recent);
        WriteDecision::Create
    }

    /// Restarts a series whose Event was deleted, with the new Event `name`.
    pub fn restart(&mut self, key: &SeriesKey, name: &str) {
        if let Some(recent) = self.recent.get_mut(key) {
            name.clone_into(&mut recent.name);
            recent.count = 1;
        }
    }

    /// Forgets a series whose write failed, so that the next occurrence is a new Event.
    pub fn forget(&mut self, key: &SeriesKey) {
        self.recent.remove(key);
    }

    fn sweep(&mut self, now: Timestamp) {
        self.recent.retain(|_, recent| recent.is_fresh(now));
        self.budgets.retain(|_, budget| !budget.is_full(now));
        self.sweep_at = SWEEP.max(2 * self.recent.len().max(self.budgets.len()));
    }
}

impl RecentEvent {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) < SERIES && may_have_passed(self.last, now)
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
        // The clock was ahead (SAFE-43).
        self.refilled = self.refilled.min(now);
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
