//! What was told lately: who repeats the same is counted up, who tells something else is heard (OPS-7).
//!
//! The note of an Event can never change, so a new text is a new Event.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::EventReason;

/// The same again within this time is a series: as long as Kubernetes' own components take it.
const SERIES: SignedDuration = SignedDuration::from_mins(6);

/// So many Events an actor may cause at once, …
const BURST: u32 = 25;

/// … and one more after each of these: a fault whose text never stays the same floods nobody.
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// With fewer entries nothing is searched for those that have ended.
const SWEEP: usize = 1024;

/// What is told: the same is the same of the same actor, in the same words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// Uid of the actor.
    pub actor: Box<str>,
    /// What happened.
    pub note: EventReason,
    /// In words.
    pub text: Box<str>,
}

/// How something is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// By an Event of its own.
    First,
    /// By counting up the Event of this name.
    Again {
        /// Of the Event.
        name: String,
        /// How often it was told, this time included.
        count: i32,
    },
    /// Not at all: the actor has told too much.
    Silence,
}

/// What was told lately, and how much each actor may still tell.
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
    /// Decides how `topic` is told at `now`; an Event of its own is to be called `name`.
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

    /// The Event is gone and was made anew as `name`.
    pub fn begin_anew(&mut self, topic: &Topic, name: &str) {
        if let Some(told) = self.told.get_mut(topic) {
            name.clone_into(&mut told.name);
            told.count = 1;
        }
    }

    /// What could not be told is new the next time.
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
