//! Pods by namespace, for lookup by bindings: those without an actor label (BIND-62), and those with one that no
//! actor's workload created (SAFE-18).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use asya_shared::resolve::PodMatch;
use parking_lot::Mutex;

use super::pod_names::PodsByName;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Key, TargetPod};

/// Index of the newest pod records.
#[derive(Debug)]
pub struct PodIndex<R> {
    inner: Mutex<Inner<R>>,
}

#[derive(Debug)]
struct Inner<R> {
    by_namespace: HashMap<Arc<str>, NamespacePods<R>>,
    /// Pods that lists in progress have not returned yet.
    missing: HashMap<WatchScope, HashSet<Key>>,
    /// Scopes whose first list is complete.
    synced: HashSet<WatchScope>,
}

#[derive(Debug)]
struct NamespacePods<R> {
    pods: HashMap<Arc<str>, Arc<R>>,
    by_name: PodsByName<Arc<str>>,
}

impl<R> Default for NamespacePods<R> {
    fn default() -> Self {
        Self {
            pods: HashMap::new(),
            by_name: PodsByName::default(),
        }
    }
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
    pub fn matching(&self, namespace: &Arc<str>, pods: &PodMatch) -> Option<Vec<Arc<R>>> {
        let inner = self.inner.lock();
        let synced = |scope: &WatchScope| inner.synced.contains(scope);
        let own_namespace = WatchScope::Namespace(Arc::clone(namespace));
        if !synced(&WatchScope::Cluster) && !synced(&own_namespace) {
            return None;
        }
        let Some(NamespacePods { pods: all, by_name }) = inner.by_namespace.get(namespace) else {
            return Some(Vec::new());
        };
        let mut candidates: Vec<_> = match by_name.candidates(pods) {
            Some(names) => names.into_iter().filter_map(|name| all.get(name)).collect(),
            None => all.values().collect(),
        };
        candidates.retain(|pod| pod.is_one_of(pods));
        Some(candidates.into_iter().cloned().collect())
    }

    pub(super) fn len(&self) -> usize {
        let inner = self.inner.lock();
        let namespaces = inner.by_namespace.values();
        namespaces.map(|namespace| namespace.pods.len()).sum()
    }

    /// Drops all scopes except these after the set of managed namespaces has changed.
    pub fn forget_all_but(&self, scopes: &BTreeSet<WatchScope>) {
        let synced = self.inner.lock().synced.clone();
        let dropped = synced.iter().filter(|scope| !scopes.contains(*scope));
        dropped.for_each(|scope| self.forget(scope));
    }

    /// Drops the records of a watch that has ended.
    pub(super) fn forget(&self, scope: &WatchScope) {
        let mut inner = self.inner.lock();
        inner.synced.remove(scope);
        inner.missing.remove(scope);
        match scope {
            _ if inner.synced.contains(&WatchScope::Cluster) => {}
            WatchScope::Namespace(namespace) => {
                inner.by_namespace.remove(namespace);
            }
            WatchScope::Cluster => {
                let Inner {
                    by_namespace,
                    synced,
                    ..
                } = &mut *inner;
                by_namespace.retain(|namespace, _| {
                    synced.contains(&WatchScope::Namespace(Arc::clone(namespace)))
                });
            }
        }
    }

    pub(super) fn init(&self, scope: &WatchScope) {
        let mut inner = self.inner.lock();
        let namespaces = inner.by_namespace.values();
        let all = namespaces.flat_map(|namespace| namespace.pods.values());
        let keys = all.map(|pod| &pod.metadata().key);
        let in_scope = keys.filter(|key| scope.covers(&key.namespace));
        let missing = in_scope.cloned().collect();
        inner.missing.insert(scope.clone(), missing);
    }

    /// Stores a pod. Returns the previous and the new record if they differ.
    pub(super) fn apply(&self, scope: &WatchScope, pod: &Arc<R>) -> Vec<Arc<R>> {
        let mut inner = self.inner.lock();
        let key = &pod.metadata().key;
        if let Some(missing) = inner.missing.get_mut(scope) {
            missing.remove(key);
        }
        let in_namespace = inner
            .by_namespace
            .entry(Arc::clone(&key.namespace))
            .or_default();
        let previous = in_namespace.put(pod);
        if previous.as_ref() == Some(pod) {
            return Vec::new();
        }
        previous.into_iter().chain([Arc::clone(pod)]).collect()
    }

    pub(super) fn delete(&self, pod: &R) -> Option<Arc<R>> {
        self.inner.lock().remove(&pod.metadata().key)
    }

    /// Completes a list. Returns whether it is the first one in this scope, and the pods that it did not return.
    pub(super) fn init_done(&self, scope: &WatchScope) -> (bool, Vec<Arc<R>>) {
        let mut inner = self.inner.lock();
        let missing = inner.missing.remove(scope).unwrap_or_default();
        let deleted = missing.iter().filter_map(|key| inner.remove(key)).collect();
        (inner.synced.insert(scope.clone()), deleted)
    }
}

impl<R: TargetPod> Inner<R> {
    fn remove(&mut self, key: &Key) -> Option<Arc<R>> {
        let in_namespace = self.by_namespace.get_mut(&key.namespace)?;
        let removed = in_namespace.remove(&key.name);
        if in_namespace.pods.is_empty() {
            self.by_namespace.remove(&key.namespace);
        }
        removed
    }
}

impl<R: TargetPod> NamespacePods<R> {
    /// Stores a pod. Returns the previous record.
    fn put(&mut self, pod: &Arc<R>) -> Option<Arc<R>> {
        let name = &pod.metadata().key.name;
        let previous = self.pods.insert(Arc::clone(name), Arc::clone(pod));
        if let Some(previous) = &previous {
            self.by_name.remove(previous.lookup_names(), name);
        }
        self.by_name.insert(pod.lookup_names(), name);
        previous
    }

    fn remove(&mut self, name: &Arc<str>) -> Option<Arc<R>> {
        let removed = self.pods.remove(name)?;
        self.by_name.remove(removed.lookup_names(), name);
        Some(removed)
    }
}
