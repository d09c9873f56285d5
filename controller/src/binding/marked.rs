//! Pods that carry an actor's label, in the one place that keeps them and tells bindings of them.
//!
//! A pod tells by its label whose sidecar it has. That may be another actor than the one that binds its target now:
//! the first went with `asya.sh/skip-unbind`, or somebody copied the label. It is a pod of the target all the same.

use std::sync::Arc;

use super::Bindings;
use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::WatchSink;
use crate::record::{Enqueue, PodRecord, Seen};

/// What the watch of these pods keeps true.
pub struct MarkedPods {
    store: Arc<Store<PodRecord>>,
    bindings: Arc<Bindings>,
}

impl MarkedPods {
    /// Keeps `store`, by actor, and what `bindings` know, by namespace.
    pub fn new(store: &Arc<Store<PodRecord>>, bindings: &Arc<Bindings>) -> Self {
        Self {
            store: Arc::clone(store),
            bindings: Arc::clone(bindings),
        }
    }

    fn with_bindings(
        &self,
        mut concerned: Vec<Enqueue>,
        changed: &[Arc<PodRecord>],
    ) -> Vec<Enqueue> {
        for pod in changed {
            for actor in self.bindings.concerned_by(&**pod) {
                if !concerned.contains(&actor) {
                    concerned.push(actor);
                }
            }
        }
        concerned
    }
}

impl WatchSink<PodRecord> for MarkedPods {
    fn relisting(&self, scope: &Scope) {
        self.store.relisting(scope);
        self.bindings.marked.relisting(scope);
    }

    fn show(&self, scope: &Scope, seen: &Seen<PodRecord>) -> Vec<Enqueue> {
        let concerned = self.store.show(scope, seen);
        let marked = &self.bindings.marked;
        let changed = if seen.record.may_be_bound() {
            marked.show(scope, &seen.record)
        } else {
            marked.removed(&seen.record).into_iter().collect()
        };
        self.with_bindings(concerned, &changed)
    }

    fn removed(&self, scope: &Scope, seen: &Seen<PodRecord>) -> Vec<Enqueue> {
        let concerned = self.store.removed(scope, seen);
        let gone: Vec<_> = self
            .bindings
            .marked
            .removed(&seen.record)
            .into_iter()
            .collect();
        self.with_bindings(concerned, &gone)
    }

    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let concerned = self.store.relisted(scope);
        let (_, gone) = self.bindings.marked.relisted(scope);
        self.with_bindings(concerned, &gone)
    }

    fn failing(&self, scope: &Scope) {
        self.store.failing(scope);
    }

    fn completed(&self, scope: &Scope) -> bool {
        self.store.completed(scope)
    }
}
