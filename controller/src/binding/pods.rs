//! Pods by namespace, for lookup by bindings: those without an actor label (BIND-62), and those with one that no
//! actor's workload created (SAFE-18).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use asya_shared::resolve::PodMatch;
use parking_lot::Mutex;

use crate::cluster::store::Scope;
use crate::record::{Key, TargetPod};

/// Index of the newest pod records.
#[derive(Debug)]
pub struct PodIndex<R> {
    inner: Mutex<Inner<R>>,
}

#[derive(Debug)]
struct Inner<R> {
    by_namespace: HashMap<Arc<str>, HashMap<Arc<str>, Arc<R>>>,
    /// Pods that lists in progress have not returned yet.
    missing: HashMap<Scope, HashSet<Key>>,
    /// Scopes whose first list is complete.
    synced: HashSet<Scope>,
}

impl<R> Default for PodIndex<R> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                by_namespace: HashMap::new(),
                missing: HashMap::new(),
                synced: HashSet::new(),
            }),
        }
    }
}

impl<R: TargetPod> PodIndex<R> {
    /// Pods of a target; `None` until the namespace has been listed.
    pub fn of(&self, namespace: &Arc<str>, pods: &PodMatch) -> Option<Vec<Arc<R>>> {
        let inner = self.inner.lock();
        let synced = |scope: &Scope| inner.synced.contains(scope);
        if !synced(&None) && !synced(&Some(Arc::clone(namespace))) {
            return None;
        }
        let in_namespace = inner.by_namespace.get(namespace).into_iter();
        let matching = in_namespace
            .flat_map(HashMap::values)
            .filter(|pod| pod.is_one_of(pods));
        Some(matching.cloned().collect())
    }

    pub(super) fn len(&self) -> usize {
        let inner = self.inner.lock();
        inner.by_namespace.values().map(HashMap::len).sum()
    }

    /// Drops all scopes except these after the set of managed namespaces has changed.
    pub fn forget_all_but(&self, scopes: &BTreeSet<Scope>) {
        let synced = self.inner.lock().synced.clone();
        let dropped = synced.iter().filter(|scope| !scopes.contains(*scope));
        dropped.for_each(|scope| self.forget(scope));
    }

    /// Drops the records of a watch that has ended.
    pub(super) fn forget(&self, scope: &Scope) {
        let mut inner = self.inner.lock();
        inner.synced.remove(scope);
        inner.missing.remove(scope);
        match scope {
            _ if inner.synced.contains(&None) => {}
            Some(namespace) => {
                inner.by_namespace.remove(namespace);
            }
            None => {
                let Inner {
                    by_namespace,
                    synced,
                    ..
                } = &mut *inner;
                by_namespace.retain(|namespace, _| synced.contains(&Some(Arc::clone(namespace))));
            }
        }
    }

    pub(super) fn init(&self, scope: &Scope) {
        let mut inner = self.inner.lock();
        let all = inner.by_namespace.values().flat_map(HashMap::values);
        let keys = all.map(|pod| &pod.metadata().key);
        let in_scope = keys.filter(|key| scope.as_ref().is_none_or(|name| *name == key.namespace));
        let missing = in_scope.cloned().collect();
        inner.missing.insert(scope.clone(), missing);
    }

    /// Stores a pod. Returns the previous and the new record if they differ.
    pub(super) fn apply(&self, scope: &Scope, pod: &Arc<R>) -> Vec<Arc<R>> {
        let mut inner = self.inner.lock();
        let key = &pod.metadata().key;
        if let Some(missing) = inner.missing.get_mut(scope) {
            missing.remove(key);
        }
        let in_namespace = inner
            .by_namespace
            .entry(Arc::clone(&key.namespace))
            .or_default();
        let previous = in_namespace.insert(Arc::clone(&key.name), Arc::clone(pod));
        if previous.as_ref() == Some(pod) {
            return Vec::new();
        }
        previous.into_iter().chain([Arc::clone(pod)]).collect()
    }

    pub(super) fn delete(&self, pod: &R) -> Option<Arc<R>> {
        self.inner.lock().remove(&pod.metadata().key)
    }

    /// Completes a list. Returns whether it is the first one in this scope, and the pods that it did not return.
    pub(super) fn init_done(&self, scope: &Scope) -> (bool, Vec<Arc<R>>) {
        let mut inner = self.inner.lock();
        let missing = inner.missing.remove(scope).unwrap_or_default();
        let deleted = missing.iter().filter_map(|key| inner.remove(key)).collect();
        (inner.synced.insert(scope.clone()), deleted)
    }
}

impl<R> Inner<R> {
    fn remove(&mut self, key: &Key) -> Option<Arc<R>> {
        let in_namespace = self.by_namespace.get_mut(&key.namespace)?;
        let removed = in_namespace.remove(&key.name);
        if in_namespace.is_empty() {
            self.by_namespace.remove(&key.namespace);
        }
        removed
    }
}
