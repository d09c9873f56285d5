//! Admission constraints on pods in namespaces with bindings: quotas, `LimitRange`s and namespace labels (SAFE-4,
//! SAFE-6).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use asya_process::clock;
use asya_shared::inject::limits_to_set;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::Bindings;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    CreationFailureRecord, Enqueue, Key, LimitRangeRecord, NamespaceRecord, Projected, QuotaRecord,
    Record,
};

/// The admission constraints, as last watched.
#[derive(Debug, Default)]
pub struct Constraints {
    quotas: ConstraintStore<QuotaRecord>,
    ranges: ConstraintStore<LimitRangeRecord>,
    namespaces: ConstraintStore<NamespaceRecord>,
}

impl Constraints {
    /// Resources for which quotas of the namespace require limits that no `LimitRange` defaults; `None` until both have
    /// been listed.
    pub fn limits(&self, namespace: &str) -> Option<BTreeSet<Box<str>>> {
        let quotas = self.quotas.in_namespace(namespace)?;
        let ranges = self.ranges.in_namespace(namespace)?;
        let required = quotas.iter().map(|quota| quota.limits());
        let defaulted = ranges.iter().map(|range| range.defaults());
        Some(limits_to_set(required, defaulted))
    }

    /// Number of records per kind (FW-14).
    pub(super) fn sizes(&self) -> [(Cow<'static, str>, usize); 3] {
        [
            self.quotas.size(),
            self.ranges.size(),
            self.namespaces.size(),
        ]
    }

    /// Drops the records of a watch that has ended.
    pub(super) fn forget(&self, scope: &WatchScope) {
        self.quotas.forget(scope);
        self.ranges.forget(scope);
        self.namespaces.forget(scope);
    }
}

#[derive(Debug)]
pub(super) struct ConstraintStore<R> {
    inner: Mutex<Inner<R>>,
}

#[derive(Debug)]
struct Inner<R> {
    records: HashMap<Key, Arc<R>>,
    /// Scopes whose first list is complete or forbidden.
    synced: HashSet<WatchScope>,
    /// Records that lists in progress have not returned yet.
    missing: HashMap<WatchScope, HashSet<Key>>,
}

impl<R> Default for ConstraintStore<R> {
    fn default() -> Self {
        let inner = Inner {
            records: HashMap::new(),
            synced: HashSet::new(),
            missing: HashMap::new(),
        };
        Self {
            inner: Mutex::new(inner),
        }
    }
}

/// The namespace that a record applies to.
fn namespace(key: &Key) -> &Arc<str> {
    if key.namespace.is_empty() {
        &key.name
    } else {
        &key.namespace
    }
}

fn is_in(key: &Key, scope: &WatchScope) -> bool {
    scope.covers(namespace(key))
}

impl<R: Record> ConstraintStore<R> {
    fn size(&self) -> (Cow<'static, str>, usize) {
        (R::kind_name(), self.inner.lock().records.len())
    }

    fn in_namespace(&self, name: &str) -> Option<Vec<Arc<R>>> {
        let inner = self.inner.lock();
        let is_synced = |scope: &WatchScope| scope.covers(name);
        inner.synced.iter().any(is_synced).then(|| {
            let records = inner.records.iter();
            let in_namespace = records.filter(|(key, _)| **namespace(key) == *name);
            in_namespace.map(|(_, record)| Arc::clone(record)).collect()
        })
    }

    fn init(&self, scope: &WatchScope) {
        let mut inner = self.inner.lock();
        let keys = inner.records.keys().filter(|key| is_in(key, scope));
        let keys = keys.cloned().collect();
        inner.missing.insert(scope.clone(), keys);
    }

    /// Stores a record. Returns its namespace if the record changed after the first list was complete.
    fn apply(&self, scope: &WatchScope, record: &Arc<R>) -> Option<Arc<str>> {
        let mut inner = self.inner.lock();
        let key = record.metadata().key.clone();
        if let Some(missing) = inner.missing.get_mut(scope) {
            missing.remove(&key);
        }
        let namespace = Arc::clone(namespace(&key));
        let previous = inner.records.insert(key, Arc::clone(record));
        let differs = previous.is_none_or(|previous| previous != *record);
        // Objects returned by the first list are not changes.
        (differs && inner.synced.contains(scope)).then_some(namespace)
    }

    fn delete(&self, record: &R) -> Option<Arc<str>> {
        let key = &record.metadata().key;
        let removed = self.inner.lock().records.remove(key);
        removed.map(|_| Arc::clone(namespace(key)))
    }

    /// Completes a list. Returns whether it is the first one in this scope, and the namespaces of deleted records.
    fn init_done(&self, scope: &WatchScope) -> (bool, Vec<Arc<str>>) {
        let mut inner = self.inner.lock();
        let missing = inner.missing.remove(scope).unwrap_or_default();
        let deleted = missing.iter().map(|key| {
            inner.records.remove(key);
            Arc::clone(namespace(key))
        });
        let deleted = deleted.collect();
        (inner.synced.insert(scope.clone()), deleted)
    }

    /// Treats the scope as listed although its first list fails, so that no constraint is assumed.
    fn assume_synced(&self, scope: &WatchScope) {
        self.inner.lock().synced.insert(scope.clone());
    }

    fn forget(&self, scope: &WatchScope) {
        let mut inner = self.inner.lock();
        inner.synced.remove(scope);
        inner.missing.remove(scope);
        let Inner {
            records, synced, ..
        } = &mut *inner;
        records.retain(|key, _| synced.iter().any(|scope| is_in(key, scope)));
    }
}

pub(super) trait Constraint: Record {
    /// The store of its records.
    fn store(constraints: &Constraints) -> &ConstraintStore<Self>;
}

impl Constraint for QuotaRecord {
    fn store(constraints: &Constraints) -> &ConstraintStore<Self> {
        &constraints.quotas
    }
}

impl Constraint for LimitRangeRecord {
    fn store(constraints: &Constraints) -> &ConstraintStore<Self> {
        &constraints.ranges
    }
}

impl Constraint for NamespaceRecord {
    fn store(constraints: &Constraints) -> &ConstraintStore<Self> {
        &constraints.namespaces
    }
}

/// A changed constraint requests a dry run for each binding in the namespace (SAFE-4).
impl<R: Constraint> WatchSink<R> for Bindings {
    fn init(&self, scope: &WatchScope) {
        R::store(&self.constraints).init(scope);
    }

    fn apply(&self, scope: &WatchScope, projected: &Projected<R>) -> Vec<Enqueue> {
        let changed = R::store(&self.constraints).apply(scope, &projected.record);
        changed.map_or_else(Vec::new, |namespace| self.request_dry_runs(namespace))
    }

    fn delete(&self, _: &WatchScope, projected: &Projected<R>) -> Vec<Enqueue> {
        let changed = R::store(&self.constraints).delete(&projected.record);
        changed.map_or_else(Vec::new, |namespace| self.request_dry_runs(namespace))
    }

    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let (first, deleted) = R::store(&self.constraints).init_done(scope);
        if first {
            return self.bindings_in(scope);
        }
        let namespaces = deleted.into_iter();
        namespaces
            .flat_map(|namespace| self.request_dry_runs(namespace))
            .collect()
    }

    fn list_failed(&self, scope: &WatchScope) {
        R::store(&self.constraints).assume_synced(scope);
    }
}

impl Bindings {
    /// Requests a dry run for all bindings in the namespace: its outcome may now differ.
    fn request_dry_runs(&self, namespace: Arc<str>) -> Vec<Enqueue> {
        let actors = self.index.actors_in(&WatchScope::Namespace(namespace));
        for actor in &actors {
            self.probe_schedule.request(actor);
        }
        actors.into_iter().map(Enqueue::Actor).collect()
    }
}

/// A controller that fails to create a target's pod requests a dry run, because the sidecar may be the reason (SAFE-4).
impl WatchSink<CreationFailureRecord> for Bindings {
    fn init(&self, _: &WatchScope) {}

    fn apply(&self, _: &WatchScope, projected: &Projected<CreationFailureRecord>) -> Vec<Enqueue> {
        let failure = &projected.record;
        let Some(creator) = failure.creator.as_ref().filter(|_| is_recent(failure.last)) else {
            return Vec::new();
        };
        let actors = self
            .index
            .actors_with_pod_controller(&failure.namespace, creator);
        for actor in &actors {
            self.probe_schedule.request(actor);
        }
        actors.into_iter().map(Enqueue::Actor).collect()
    }

    fn delete(&self, _: &WatchScope, _: &Projected<CreationFailureRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn init_done(&self, _: &WatchScope) -> Vec<Enqueue> {
        Vec::new()
    }
}

/// How recent an Event has to be. The API server keeps Events for an hour, so a list also returns old ones.
const RECENT: SignedDuration = SignedDuration::from_mins(2);

fn is_recent(time: Timestamp) -> bool {
    clock::now().duration_since(time) < RECENT
}

#[cfg(test)]
mod tests;
