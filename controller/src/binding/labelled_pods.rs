//! Watch sink for pods with an actor label: stores them by actor, and enqueues the bindings that they affect.
//!
//! The label names the actor whose sidecar the pod has. Another actor may bind the pod's target now, because the first
//! one was deleted with `asya.sh/skip-unbind`, or because the label was copied. The pod still belongs to the target.

use std::sync::Arc;

use super::Bindings;
use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Enqueue, PodRecord, Projected};

/// Feeds one watch into the store by actor and the index by namespace.
pub struct LabelledPods {
    store: Arc<Store<PodRecord>>,
    bindings: Arc<Bindings>,
}

impl LabelledPods {
    /// Updates `store` by actor, and the pod index of `bindings` by namespace.
    pub fn new(store: &Arc<Store<PodRecord>>, bindings: &Arc<Bindings>) -> Self {
        Self {
            store: Arc::clone(store),
            bindings: Arc::clone(bindings),
        }
    }

    fn with_bindings(
        &self,
        mut affected: Vec<Enqueue>,
        changed: &[Arc<PodRecord>],
    ) -> Vec<Enqueue> {
        for pod in changed {
            for actor in self.bindings.affected_by_pod(&**pod) {
                if !affected.contains(&actor) {
                    affected.push(actor);
                }
            }
        }
        affected
    }
}

impl WatchSink<PodRecord> for LabelledPods {
    fn init(&self, scope: &WatchScope) {
        self.store.init(scope);
        self.bindings.labelled_pods.init(scope);
    }

    fn apply(&self, scope: &WatchScope, projected: &Projected<PodRecord>) -> Vec<Enqueue> {
        let affected = self.store.apply(scope, projected);
        let labelled = &self.bindings.labelled_pods;
        let changed = if projected.record.may_be_bound() {
            labelled.apply(scope, &projected.record)
        } else {
            labelled.delete(&projected.record).into_iter().collect()
        };
        self.with_bindings(affected, &changed)
    }

    fn delete(&self, scope: &WatchScope, projected: &Projected<PodRecord>) -> Vec<Enqueue> {
        let affected = self.store.delete(scope, projected);
        let removed: Vec<_> = self
            .bindings
            .labelled_pods
            .delete(&projected.record)
            .into_iter()
            .collect();
        self.with_bindings(affected, &removed)
    }

    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let affected = self.store.init_done(scope);
        let (_, removed) = self.bindings.labelled_pods.init_done(scope);
        self.with_bindings(affected, &removed)
    }

    fn list_failed(&self, scope: &WatchScope) {
        self.store.list_failed(scope);
    }

    fn list_completed(&self, scope: &WatchScope) -> bool {
        self.store.list_completed(scope)
    }
}
