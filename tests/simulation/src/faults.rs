//! Faults of calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;
use crate::randomness::{Seed, delay, pick};

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server returns 500 and does nothing.
    ServerError,
    /// The server returns 429 and does nothing.
    TooManyRequests,
    /// The server cannot be reached.
    Unreachable,
    /// The server carries out the request, but the response is lost.
    ResponseLost,
    /// Another client changes the object just before the request.
    ConcurrentWrite,
    /// The call is slow.
    Slow,
}

/// The latency of a call, in each direction.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Time until the server acts.
    pub there: Duration,
    /// Time until the response arrives.
    pub back: Duration,
}

/// The faults of a run. Every call has a name, so that a run can be repeated with only some of its faults.
pub struct Faults {
    seed: Seed,
    /// Fraction of calls that fail.
    rate: f64,
    /// Calls that must not fail.
    without: BTreeSet<String>,
    /// Until when faults happen.
    until: Duration,
    /// How often each kind of call was made.
    calls: Mutex<BTreeMap<String, u32>>,
    /// The faults so far, by call name.
    injected: Mutex<BTreeMap<String, Fault>>,
}

/// Maximum duration of a slow write in milliseconds: shorter than the time that another replica waits before it leads.
const SLOW_WRITE: u64 = 2_500;

impl Faults {
    /// Injects faults into this fraction of all calls, except into the calls `without`, until `until`.
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

    /// Whether faults may still occur.
    #[must_use]
    pub fn active(&self) -> bool {
        clock::elapsed() < self.until
    }

    /// Draws the fault of a call, if any.
    pub fn draw(&self, call: &str, possible: &[Fault]) -> Option<Fault> {
        let mut random = self.seed.rng_for(("fault", call));
        if !self.active() || random.f64() >= self.rate || self.without.contains(call) {
            return None;
        }
        let fault = *pick(&mut random, possible);
        self.injected.lock().insert(call.to_owned(), fault);
        Some(fault)
    }

    /// Draws the latency of a call.
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

    /// The faults so far, by call name.
    #[must_use]
    pub fn injected(&self) -> BTreeMap<String, Fault> {
        self.injected.lock().clone()
    }
}
