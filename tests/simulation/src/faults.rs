//! What goes wrong with calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;
use crate::randomness::{Seed, delay, pick};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server answers 500 and does nothing.
    ServerError,
    /// The server answers 429 and does nothing.
    TooManyRequests,
    /// The server cannot be reached.
    Unreachable,
    /// The server does what it was asked to, and the response is lost.
    ResponseLost,
    /// Another client changes the object just before.
    ConcurrentWrite,
    /// The call takes long.
    Slow,
}

/// How long a call travels to the server and back.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Until the server acts.
    pub there: Duration,
    /// Until the response arrives.
    pub back: Duration,
}

/// The faults of a run. Each call has a name, so that a run can be repeated with some of its faults only.
pub struct Faults {
    seed: Seed,
    /// Share of the calls that fail.
    rate: f64,
    /// Faults that do not happen.
    without: BTreeSet<String>,
    /// When faults end.
    until: Duration,
    /// How often each call was made.
    calls: Mutex<BTreeMap<String, u32>>,
    /// The faults so far, by the name of the call.
    injected: Mutex<BTreeMap<String, Fault>>,
}

/// Milliseconds that a slow write takes at most: less than another replica waits before it leads.
const SLOW_WRITE: u64 = 2_500;

impl Faults {
    /// Faults in this share of all calls, except in calls `without`, until that time.
    #[must_use]
    pub fn new(seed: Seed, rate: f64, without: BTreeSet<String>, until: Duration) -> Self {
        Self {
            seed,
            rate,
            without,
            until,
            calls: Mutex::default(),
            injected: Mutex::default(),
        }
    }

    /// The name of the next call of this kind.
    pub fn name(&self, kind: &str) -> String {
        let mut calls = self.calls.lock();
        let count = calls.entry(kind.to_owned()).or_default();
        *count += 1;
        format!("{kind} #{count}")
    }

    /// Whether faults may still happen.
    #[must_use]
    pub fn active(&self) -> bool {
        clock::elapsed() < self.until
    }

    /// What goes wrong with a call.
    pub fn draw(&self, call: &str, possible: &[Fault]) -> Option<Fault> {
        let mut random = self.seed.rng_for(("fault", call));
        if !self.active() || random.f64() >= self.rate || self.without.contains(call) {
            return None;
        }
        let fault = *pick(&mut random, possible);
        self.injected.lock().insert(call.to_owned(), fault);
        Some(fault)
    }

    /// How long a call takes.
    pub fn latency(&self, call: &str, fault: Option<Fault>) -> Latency {
        let mut random = self.seed.rng_for(("latency", call));
        let usual = Latency {
            there: delay(&mut random, 1..150),
            back: delay(&mut random, 1..150),
        };
        if fault != Some(Fault::Slow) {
            return usual;
        }
        if random.bool() {
            let there = delay(&mut random, 100..SLOW_WRITE);
            Latency { there, ..usual }
        } else {
            let back = delay(&mut random, 100..8_000);
            Latency { back, ..usual }
        }
    }

    /// The faults so far, by the name of the call.
    #[must_use]
    pub fn injected(&self) -> BTreeMap<String, Fault> {
        self.injected.lock().clone()
    }
}
