//! Records of one kind, indexed by the actor that they belong to.

mod by_namespace;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use by_namespace::ByNamespace;
use parking_lot::Mutex;

use super::watch_scope::{WatchScope, covers};
use crate::record::{Enqueue, Key, Projected, Record};

/// The newest records of a kind, from the watches and from responses to the operator's own writes.
#[derive(Debug)]
pub struct Store<R> {
    inner: Mutex<Inner<R>>,
}

#[derive(Debug)]
struct Inner<R> {
    records: HashMap<Key, Arc<R>>,
    by_actor: HashMap<Key, HashSet<Key>>,
    by_namespace: ByNamespace,
    /// Newest version that each watch has delivered: an older response to a write is superseded.
    newest_versions: HashMap<WatchScope, u64>,
    relists: HashMap<WatchScope, Relist>,
    /// State of each scope's first list.
    lists: HashMap<WatchScope, List>,
}

/// A scope's first list. Until it is complete, objects that are missing from the store may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// It has not arrived yet.
    Pending,
    /// It failed, and may never arrive.
    Failing,
    /// It arrived.
    Complete,
    /// There is none: the kind is not served.
    NotServed,
}

/// Names that a relist in progress has not returned yet.
type Relist = HashSet<Key>;

impl<R> Default for Store<R> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                records: HashMap::new(),
                by_actor: HashMap::new(),
                by_namespace: ByNamespace::default(),
                newest_versions: HashMap::new(),
                relists: HashMap::new(),
                lists: HashMap::new(),
            }),
        }
    }
}

impl<R: Record> Store<R> {
    pub fn get(&self, key: &Key) -> Option<Arc<R>> {
        self.inner.lock().records.get(key).cloned()
    }

    /// The records that belong to an actor, in no particular order.
    pub fn of_actor(&self, actor: &Key) -> Vec<Arc<R>> {
        let inner = self.inner.lock();
        let keys = inner.by_actor.get(actor).into_iter().flatten();
        keys.filter_map(|key| inner.records.get(key))
            .cloned()
            .collect()
    }

    /// Names of all records.
    pub fn keys(&self) -> Vec<Key> {
        self.inner.lock().records.keys().cloned().collect()
    }

    /// Names of all records of a namespace.
    pub fn keys_in(&self, namespace: &str) -> Vec<Key> {
        const { assert!(R::BY_NAMESPACE, "not indexed") };
        self.inner.lock().by_namespace.keys(namespace).collect()
    }

    /// Whether a namespace has an active record besides the one of this name.
    pub fn has_other_active(&self, key: &Key) -> bool {
        const { assert!(R::BY_NAMESPACE, "not indexed") };
        let inner = self.inner.lock();
        let own = inner.records.get(key).is_some_and(|own| own.is_active());
        inner.by_namespace.active(&key.namespace) > usize::from(own)
    }

    /// Calls `visit` with every record, under the lock: it must not block.
    pub fn each(&self, visit: impl FnMut(&Arc<R>)) {
        self.inner.lock().records.values().for_each(visit);
    }

    pub fn len(&self) -> usize {
        self.inner.lock().records.len()
    }

    /// Stores an object that a watch has delivered. Returns what to enqueue.
    pub fn apply(&self, scope: &WatchScope, projected: &Projected<R>) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        inner.note_version(scope, &projected.record);
        inner.put(Arc::clone(&projected.record))
    }

    /// Stores the response to one of the operator's writes, unless the watch is already past it or does not cover the
    /// object (its namespace may have been dropped meanwhile, or its kind removed): no event would report its later
    /// changes.
    pub fn apply_response(&self, projected: &Projected<R>) {
        if !projected.record.is_watched() {
            return;
        }
        let mut inner = self.inner.lock();
        let metadata = projected.record.metadata();
        let mut lists = inner.lists.iter();
        let covers = |(scope, list): (&WatchScope, &List)| {
            *list != List::NotServed && scope.covers(&metadata.key.namespace)
        };
        if !inner.lists.is_empty() && !lists.any(covers) {
            return;
        }
        let own_namespace = WatchScope::Namespace(Arc::clone(&metadata.key.namespace));
        let newest = [&WatchScope::Cluster, &own_namespace]
            .into_iter()
            .filter_map(|scope| inner.newest_versions.get(scope))
            .max();
        if newest.is_none_or(|newest| *newest < metadata.resource_version) {
            inner.put(Arc::clone(&projected.record));
        }
    }

    /// Removes an object that a watch has reported as deleted. Returns what to enqueue.
    pub fn delete(&self, scope: &WatchScope, projected: &Projected<R>) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        inner.note_version(scope, &projected.record);
        let metadata = projected.record.metadata();
        let is_same = inner
            .records
            .get(&metadata.key)
            .is_some_and(|stored| stored.metadata().uid == metadata.uid);
        if is_same {
            inner.remove(&metadata.key)
        } else {
            Vec::new()
        }
    }

    /// Starts a list: objects that it does not return before [`Store::init_done`] are removed.
    pub fn init(&self, scope: &WatchScope) {
        let mut inner = self.inner.lock();
        let keys = inner
            .records
            .keys()
            .filter(|key| scope.covers(&key.namespace));
        let missing = keys.cloned().collect();
        inner.relists.insert(scope.clone(), missing);
    }

    /// Completes a list. Returns what to enqueue for the objects that it did not return.
    pub fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        let missing = inner.relists.remove(scope).unwrap_or_default();
        missing.iter().flat_map(|key| inner.remove(key)).collect()
    }

    /// Marks a scope's first list as pending.
    pub fn list_pending(&self, scope: &WatchScope) {
        self.inner.lock().lists.insert(scope.clone(), List::Pending);
    }

    /// Marks a scope's first list as failing.
    pub fn list_failed(&self, scope: &WatchScope) {
        self.inner.lock().lists.insert(scope.clone(), List::Failing);
    }

    /// Marks a scope's list as complete. Returns whether it is the first.
    pub fn list_completed(&self, scope: &WatchScope) -> bool {
        let before = self
            .inner
            .lock()
            .lists
            .insert(scope.clone(), List::Complete);
        before != Some(List::Complete)
    }

    /// Drops all objects of a kind that is no longer served; its next list is the first one again. Returns what to
    /// enqueue.
    pub fn kind_removed(&self, scope: &WatchScope) -> Vec<Enqueue> {
        self.inner
            .lock()
            .lists
            .insert(scope.clone(), List::NotServed);
        self.init(scope);
        self.init_done(scope)
    }

    /// The namespaces of the running watches that do not cover the whole cluster.
    pub fn namespaces(&self) -> Vec<Arc<str>> {
        let inner = self.inner.lock();
        let namespaces = inner.lists.keys().filter_map(WatchScope::namespace);
        namespaces.cloned().collect()
    }

    /// Whether the objects of a namespace have been listed, so that one missing from the store does not exist.
    pub fn is_synced(&self, namespace: &str) -> bool {
        let inner = self.inner.lock();
        let mut lists = inner.lists.iter();
        lists.any(|(scope, list)| *list == List::Complete && scope.covers(namespace))
    }

    /// Whether the first list of any scope is pending.
    pub fn has_pending_lists(&self) -> bool {
        let inner = self.inner.lock();
        inner.lists.values().any(|list| *list == List::Pending)
    }

    /// The namespaces whose objects are known. `None` until all first lists have arrived or failed, or if nothing could
    /// be listed.
    pub fn known_namespaces(&self) -> Option<KnownNamespaces> {
        let inner = self.inner.lock();
        let mut known = BTreeSet::new();
        for (scope, list) in &inner.lists {
            match (list, scope) {
                (List::Complete, WatchScope::Namespace(namespace)) => {
                    known.insert(Arc::clone(namespace));
                }
                (List::Complete, WatchScope::Cluster) => return Some(KnownNamespaces::All),
                (List::Failing, WatchScope::Namespace(_)) => {}
                (List::Failing, WatchScope::Cluster) | (List::Pending | List::NotServed, _) => {
                    return None;
                }
            }
        }
        (!inner.lists.is_empty()).then_some(KnownNamespaces::Only(known))
    }

    /// Drops the records of namespaces outside `scopes`, and returns their names.
    pub fn retain_scopes(&self, scopes: &BTreeSet<WatchScope>) -> Vec<Key> {
        let mut inner = self.inner.lock();
        let dropped: Vec<Key> = inner
            .records
            .keys()
            .filter(|key| !covers(scopes, key))
            .cloned()
            .collect();
        for key in &dropped {
            inner.remove(key);
        }
        inner
            .newest_versions
            .retain(|scope, _| scopes.contains(scope));
        inner.relists.retain(|scope, _| scopes.contains(scope));
        inner.lists.retain(|scope, _| scopes.contains(scope));
        dropped
    }
}

/// The namespaces whose objects have been listed: they are watched, and their list has not failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownNamespaces {
    All,
    Only(BTreeSet<Arc<str>>),
}

impl KnownNamespaces {
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(known) => known.contains(namespace),
        }
    }
}

impl<R: Record> Inner<R> {
    fn note_version(&mut self, scope: &WatchScope, record: &R) {
        let metadata = record.metadata();
        if let Some(missing) = self.relists.get_mut(scope) {
            missing.remove(&metadata.key);
        }
        let newest = self.newest_versions.entry(scope.clone()).or_default();
        *newest = metadata.resource_version.max(*newest);
    }

    fn put(&mut self, mut record: Arc<R>) -> Vec<Enqueue> {
        let metadata = record.metadata();
        let existing = self.records.get(&metadata.key).cloned();
        let same = existing.as_ref();
        if let Some(existing) = same.filter(|it| it.metadata().uid == metadata.uid) {
            if existing.metadata().resource_version > metadata.resource_version {
                // The response to a write has overtaken the watch.
                return self.inherit(existing, &record);
            }
            if let Some(inherited) = record.inherit(existing) {
                record = Arc::new(inherited);
            }
        }
        let key = record.metadata().key.clone();
        let affected = record.to_enqueue();
        let changed = existing
            .as_ref()
            .is_none_or(|existing| **existing != *record);
        let previous = existing.map(|existing| existing.to_enqueue());
        if previous.as_ref() != Some(&affected) {
            if let Some(Enqueue::Actor(actor)) = &previous {
                self.unindex(actor, &key);
            }
            if let Enqueue::Actor(actor) = &affected {
                self.by_actor
                    .entry(actor.clone())
                    .or_default()
                    .insert(key.clone());
            }
        }
        if R::BY_NAMESPACE {
            let was_active = self.records.get(&key).map(|existing| existing.is_active());
            self.by_namespace.put(&key, was_active, record.is_active());
        }
        self.records.insert(key, record);
        if !changed {
            return Vec::new();
        }
        previous
            .into_iter()
            .filter(|before| *before != affected)
            .chain([affected.clone()])
            .collect()
    }

    /// Completes a stored record by an older version of its object. Returns what to enqueue.
    fn inherit(&mut self, stored: &R, older: &R) -> Vec<Enqueue> {
        let Some(inherited) = stored.inherit(older) else {
            return Vec::new();
        };
        let key = inherited.metadata().key.clone();
        let affected = inherited.to_enqueue();
        self.records.insert(key, Arc::new(inherited));
        vec![affected]
    }

    fn remove(&mut self, key: &Key) -> Vec<Enqueue> {
        let Some(record) = self.records.remove(key) else {
            return Vec::new();
        };
        if R::BY_NAMESPACE {
            self.by_namespace.remove(key, record.is_active());
        }
        let affected = record.to_enqueue();
        if let Enqueue::Actor(actor) = &affected {
            self.unindex(actor, key);
        }
        vec![affected]
    }

    fn unindex(&mut self, actor: &Key, key: &Key) {
        if let Some(keys) = self.by_actor.get_mut(actor) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_actor.remove(actor);
            }
        }
    }
}

#[cfg(test)]
mod tests;
