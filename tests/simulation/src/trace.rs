//! The trace of a run, one line per event.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use crate::clock;

/// The events of a run so far.
#[derive(Default)]
pub struct Trace(Mutex<Vec<String>>);

impl Trace {
    /// Adds an event.
    pub fn add(&self, who: &str, what: impl Display) {
        let line = format!("{:>9.3}s  {who:<12} {what}", clock::elapsed().as_secs_f64());
        self.0.lock().push(line);
    }

    /// All events.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    /// Drops all events.
    pub fn clear(&self) {
        *self.0.lock() = Vec::new();
    }

    /// A hash that differs between different traces.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.lock().hash(&mut hasher);
        hasher.finish()
    }
}
