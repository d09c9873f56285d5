//! Failures that only Events report: one entry per object, regardless of the number of Events.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::record::Key;

/// How long to keep an Event that arrived before the object that it is about.
const EARLY_EVENT_LIFETIME: Duration = Duration::from_secs(30);

/// Expired entries are swept only above this many entries.
pub(super) const SWEEP: usize = 1024;

/// Failures by the object that Events report them about. Each expires by a rule of the caller.
#[derive(Debug)]
pub(super) struct EventFailures<F> {
    by_object: HashMap<Key, F>,
    sweep_at: usize,
}

impl<F> Default for EventFailures<F> {
    fn default() -> Self {
        Self {
            by_object: HashMap::new(),
            sweep_at: SWEEP,
        }
    }
}

impl<F> EventFailures<F> {
    pub(super) fn get(&self, object: &Key) -> Option<&F> {
        self.by_object.get(object)
    }

    pub(super) fn get_mut(&mut self, object: &Key) -> Option<&mut F> {
        self.by_object.get_mut(object)
    }

    pub(super) fn insert(&mut self, object: Key, failure: F) {
        self.by_object.insert(object, failure);
    }

    pub(super) fn remove_if(&mut self, object: &Key, applies: impl FnOnce(&F) -> bool) {
        if self.get(object).is_some_and(applies) {
            self.by_object.remove(object);
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Key, &F) -> bool) {
        self.by_object
            .retain(|object, failure| keep(object, failure));
    }

    pub(super) fn len(&self) -> usize {
        self.by_object.len()
    }

    /// Drops the entries that `keep` rejects, once there are enough of them for that to pay.
    pub(super) fn sweep(&mut self, keep: impl FnMut(&Key, &F) -> bool) {
        if self.len() >= self.sweep_at {
            self.retain(keep);
            self.sweep_at = SWEEP.max(2 * self.len());
        }
    }
}

/// Whether an Event received at `since` may still be ahead of its object.
pub(super) fn may_be_early(since: Timestamp, now: Timestamp) -> bool {
    lies_within(EARLY_EVENT_LIFETIME, since, now)
}

/// Whether at most `span` has passed from `then` to `now`.
pub(super) fn lies_within(span: Duration, then: Timestamp, now: Timestamp) -> bool {
    then.checked_add(span).map_or(true, |ends| now <= ends)
}
