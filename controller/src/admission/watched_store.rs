//! Sink of a watch that also reports whether its first list is complete.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Enqueue, Projected, Record};

pub(super) struct WatchedStore<R> {
    pub(super) store: Store<R>,
    synced: AtomicBool,
}

impl<R: Record> Default for WatchedStore<R> {
    fn default() -> Self {
        Self {
            store: Store::default(),
            synced: AtomicBool::new(false),
        }
    }
}

impl<R> WatchedStore<R> {
    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }
}

impl<R: Record> WatchSink<R> for WatchedStore<R> {
    fn init(&self, scope: &WatchScope) {
        self.store.init(scope);
    }

    fn apply(&self, scope: &WatchScope, projected: &Projected<R>) -> Vec<Enqueue> {
        self.store.apply(scope, projected)
    }

    fn delete(&self, scope: &WatchScope, projected: &Projected<R>) -> Vec<Enqueue> {
        self.store.delete(scope, projected)
    }

    /// The first list triggers a reconcile even if it is empty.
    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let deleted = self.store.init_done(scope);
        let first = !self.synced.swap(true, Ordering::AcqRel);
        deleted
            .into_iter()
            .chain(first.then_some(Enqueue::AllActors))
            .collect()
    }
}
