//! Whether the watches of a kind are healthy. A watch that has ended no longer counts.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Metrics;

/// How many watches of each kind fail.
#[derive(Debug, Default)]
pub(super) struct FailingWatches(Mutex<HashMap<String, usize>>);

impl FailingWatches {
    /// Records that one more watch of a kind fails, or one fewer; returns whether none does.
    fn record(&self, kind: &str, failing: bool) -> bool {
        let mut kinds = self.0.lock();
        let count = kinds.entry(kind.to_owned()).or_default();
        *count = if failing {
            count.saturating_add(1)
        } else {
            count.saturating_sub(1)
        };
        *count == 0
    }

    fn are_none(&self, kind: &str) -> bool {
        self.0.lock().get(kind).is_none_or(|count| *count == 0)
    }
}

/// The health of one watch, in a namespace or in all. Dropped with the watch.
pub struct WatchHealth {
    metrics: Arc<Metrics>,
    kind: String,
    failing: bool,
}

impl WatchHealth {
    /// The health of a watch of `kind` that has neither listed nor failed.
    pub fn new(metrics: &Arc<Metrics>, kind: &str) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            kind: kind.to_owned(),
            failing: false,
        }
    }

    /// Sets whether the watch is healthy.
    pub fn set(&mut self, healthy: bool) {
        let failing = &self.metrics.failing_watches;
        let none_fails = if self.failing == healthy {
            self.failing = !healthy;
            failing.record(&self.kind, self.failing)
        } else {
            failing.are_none(&self.kind)
        };
        self.metrics.watch_healthy(&self.kind, none_fails);
    }
}

impl Drop for WatchHealth {
    fn drop(&mut self) {
        if self.failing {
            self.set(true);
        }
    }
}
