//! Sink of a watch that also tells whether its first list is complete.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::WatchSink;
use crate::record::{Enqueue, Projected, Record};

/// A store, and whether its first list is complete.
pub(super) struct ListedStore<R> {
    pub(super) store: Store<R>,
    listed: AtomicBool,
}

impl<R: Record> Default for ListedStore<R> {
    fn default() -> Self {
        Self {
            store: Store::default(),
            listed: AtomicBool::new(false),
        }
    }
}

impl<R> ListedStore<R> {
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }
}

impl<R: Record> WatchSink<R> for ListedStore<R> {
    fn init(&self, scope: &Scope) {
        self.store.init(scope);
    }

    fn apply(&self, scope: &Scope, projected: &Projected<R>) -> Vec<Enqueue> {
        self.store.apply(scope, projected)
    }

    fn delete(&self, scope: &Scope, projected: &Projected<R>) -> Vec<Enqueue> {
        self.store.delete(scope, projected)
    }

    /// The first list triggers a reconcile even if it is empty.
    fn init_done(&self, scope: &Scope) -> Vec<Enqueue> {
        let deleted = self.store.init_done(scope);
        let first = !self.listed.swap(true, Ordering::AcqRel);
        deleted
            .into_iter()
            .chain(first.then_some(Enqueue::AllActors))
            .collect()
    }
}
