//! Watch sink for pods with an actor label: keeps them by actor, and enqueues the bindings they concern.
//!
//! The label names the actor whose sidecar the pod has. Another actor may bind the pod's target now, because the first
//! one was deleted with `asya.sh/skip-unbind`, or because the label was copied. The pod still belongs to the target.

use std::sync::Arc;

use super::Bindings;
use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::WatchSink;
use crate::record::{Enqueue, PodRecord, Projected};

/// Feeds one watch into the store by actor and the index by namespace.
pub struct MarkedPods {
    store: Arc<Store<PodRecord>>,
    bindings: Arc<Bindings>,
}

impl MarkedPods {
    /// Updates `store` by actor, and the pod index of `bindings` by namespace.
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

    fn show(&self, scope: &Scope, seen: &Projected<PodRecord>) -> Vec<Enqueue> {
        let concerned = self.store.show(scope, seen);
        let marked = &self.bindings.marked;
        let changed = if seen.record.may_be_bound() {
            marked.show(scope, &seen.record)
        } else {
            marked.removed(&seen.record).into_iter().collect()
        };
        self.with_bindings(concerned, &changed)
    }

    fn removed(&self, scope: &Scope, seen: &Projected<PodRecord>) -> Vec<Enqueue> {
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
