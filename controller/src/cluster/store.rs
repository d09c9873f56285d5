//! Records of one kind, indexed by the actor they concern.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::record::{Enqueue, Key, Projected, Record};

/// The namespace that a watch covers; `None` is the whole cluster.
pub type Scope = Option<Arc<str>>;

/// Whether one of `scopes` covers the namespace of `key`.
pub fn covers(scopes: &BTreeSet<Scope>, key: &Key) -> bool {
    scopes.contains(&None) || scopes.contains(&Some(Arc::clone(&key.namespace)))
}

/// The newest records of a kind, from the watches and from our own writes.
#[derive(Debug)]
pub struct Store<R> {
    inner: Mutex<Inner<R>>,
}

#[derive(Debug)]
struct Inner<R> {
    records: HashMap<Key, Arc<R>>,
    by_actor: HashMap<Key, HashSet<Key>>,
    /// Newest version that each watch has shown: a response to a write that is older is superseded.
    shown: HashMap<Scope, u64>,
    relists: HashMap<Scope, Relist>,
    /// State of each scope's first list.
    lists: HashMap<Scope, List>,
}

/// A scope's first list. Until it is complete, objects that are not shown may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// It has not arrived yet.
    Awaited,
    /// It failed, and may never arrive.
    Failing,
    /// It arrived.
    Complete,
}

/// Names that a running relist has not shown yet.
type Relist = HashSet<Key>;

impl<R> Default for Store<R> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                records: HashMap::new(),
                by_actor: HashMap::new(),
                shown: HashMap::new(),
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

    /// The records that concern an actor, in no particular order.
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
        self.inner
            .lock()
            .records
            .keys()
            .filter(|key| &*key.namespace == namespace)
            .cloned()
            .collect()
    }

    /// Calls `look` with every record, under the lock: it must not block.
    pub fn each(&self, look: impl FnMut(&Arc<R>)) {
        self.inner.lock().records.values().for_each(look);
    }

    pub fn len(&self) -> usize {
        self.inner.lock().records.len()
    }

    /// Stores what a watch shows. Returns what to enqueue.
    pub fn show(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        inner.note_version(scope, &seen.record);
        inner.put(Arc::clone(&seen.record))
    }

    /// Stores the response to a write of ours, unless the watch is already past it or never shows the object (its
    /// namespace may have been dropped meanwhile): no event would report what happens to it.
    pub fn wrote(&self, seen: &Projected<R>) {
        if !seen.record.is_watched() {
            return;
        }
        let mut inner = self.inner.lock();
        let metadata = seen.record.metadata();
        let mut watched = inner.lists.keys();
        if !inner.lists.is_empty() && !watched.any(|scope| is_in(scope, &metadata.key.namespace)) {
            return;
        }
        let shown = [&None, &Some(Arc::clone(&metadata.key.namespace))]
            .into_iter()
            .filter_map(|scope| inner.shown.get(scope))
            .max();
        if shown.is_none_or(|shown| *shown < metadata.resource_version) {
            inner.put(Arc::clone(&seen.record));
        }
    }

    /// Removes what a watch shows as deleted. Returns what to enqueue.
    pub fn removed(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        inner.note_version(scope, &seen.record);
        let metadata = seen.record.metadata();
        let same = inner
            .records
            .get(&metadata.key)
            .is_some_and(|kept| kept.metadata().uid == metadata.uid);
        if same {
            inner.remove(&metadata.key)
        } else {
            Vec::new()
        }
    }

    /// Begins a list: objects that it does not show before [`Store::relisted`] are removed.
    pub fn relisting(&self, scope: &Scope) {
        let mut inner = self.inner.lock();
        let keys = inner
            .records
            .keys()
            .filter(|key| is_in(scope, &key.namespace));
        let missing = keys.cloned().collect();
        inner.relists.insert(scope.clone(), missing);
    }

    /// Completes a list. Returns what to enqueue for the objects that it did not show.
    pub fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let mut inner = self.inner.lock();
        let missing = inner.relists.remove(scope).unwrap_or_default();
        missing.iter().flat_map(|key| inner.remove(key)).collect()
    }

    /// Marks a scope's first list as pending.
    pub fn awaited(&self, scope: &Scope) {
        self.inner.lock().lists.insert(scope.clone(), List::Awaited);
    }

    /// Marks a scope's first list as failing.
    pub fn failing(&self, scope: &Scope) {
        self.inner.lock().lists.insert(scope.clone(), List::Failing);
    }

    /// Marks a scope's list as complete. Returns whether it is the first.
    pub fn completed(&self, scope: &Scope) -> bool {
        let before = self
            .inner
            .lock()
            .lists
            .insert(scope.clone(), List::Complete);
        before != Some(List::Complete)
    }

    /// Drops all objects of a kind that is no longer served; its next list is the first one again. Returns what to
    /// enqueue.
    pub fn unserved(&self, scope: &Scope) -> Vec<Enqueue> {
        self.inner.lock().lists.remove(scope);
        self.relisting(scope);
        self.relisted(scope)
    }

    /// Whether objects of a namespace that are not shown do not exist.
    pub fn is_listed(&self, namespace: &str) -> bool {
        let inner = self.inner.lock();
        let mut lists = inner.lists.iter();
        lists.any(|(scope, list)| *list == List::Complete && is_in(scope, namespace))
    }

    /// Whether the first list of any scope is pending.
    pub fn awaits_lists(&self) -> bool {
        let inner = self.inner.lock();
        inner.lists.values().any(|list| *list == List::Awaited)
    }

    /// Whether the store is as complete as it can be: all first lists arrived, except for those of namespaces that
    /// cannot be listed.
    pub fn is_filled(&self) -> bool {
        let inner = self.inner.lock();
        let came = |(scope, list): (&Scope, &List)| match list {
            List::Complete => true,
            List::Failing => scope.is_some(),
            List::Awaited => false,
        };
        !inner.lists.is_empty() && inner.lists.iter().all(came)
    }

    /// Drops the records of namespaces outside `scopes`, and returns their names.
    pub fn forget_all_but(&self, scopes: &BTreeSet<Scope>) -> Vec<Key> {
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
        inner.shown.retain(|scope, _| scopes.contains(scope));
        inner.relists.retain(|scope, _| scopes.contains(scope));
        inner.lists.retain(|scope, _| scopes.contains(scope));
        dropped
    }
}

/// Whether a watch of this scope shows the objects of a namespace.
fn is_in(scope: &Scope, namespace: &str) -> bool {
    scope.as_ref().is_none_or(|it| **it == *namespace)
}

impl<R: Record> Inner<R> {
    fn note_version(&mut self, scope: &Scope, record: &R) {
        let metadata = record.metadata();
        if let Some(missing) = self.relists.get_mut(scope) {
            missing.remove(&metadata.key);
        }
        let shown = self.shown.entry(scope.clone()).or_default();
        *shown = metadata.resource_version.max(*shown);
    }

    fn put(&mut self, record: Arc<R>) -> Vec<Enqueue> {
        let metadata = record.metadata();
        let before = self.records.get(&metadata.key).cloned();
        if let Some(before) = &before {
            let kept = before.metadata();
            if kept.uid == metadata.uid && kept.resource_version > metadata.resource_version {
                return Vec::new();
            }
        }
        let key = metadata.key.clone();
        let concerns = record.concerns();
        let changed = before.as_ref().is_none_or(|before| **before != *record);
        let concerned_before = before.map(|before| before.concerns());
        if concerned_before.as_ref() != Some(&concerns) {
            if let Some(Enqueue::Actor(actor)) = &concerned_before {
                self.unindex(actor, &key);
            }
            if let Enqueue::Actor(actor) = &concerns {
                self.by_actor
                    .entry(actor.clone())
                    .or_default()
                    .insert(key.clone());
            }
        }
        self.records.insert(key, record);
        if !changed {
            return Vec::new();
        }
        concerned_before
            .into_iter()
            .filter(|before| *before != concerns)
            .chain([concerns.clone()])
            .collect()
    }

    fn remove(&mut self, key: &Key) -> Vec<Enqueue> {
        let Some(record) = self.records.remove(key) else {
            return Vec::new();
        };
        let concerns = record.concerns();
        if let Enqueue::Actor(actor) = &concerns {
            self.unindex(actor, key);
        }
        vec![concerns]
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
