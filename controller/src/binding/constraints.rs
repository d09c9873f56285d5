//! Admission constraints on pods in namespaces with bindings: quotas, `LimitRange`s and namespace labels (SAFE-4,
//! SAFE-6).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::Bindings;
use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{
    CreationFailureRecord, Enqueue, Key, LimitRangeRecord, NamespaceRecord, Projected, QuotaRecord,
    Record,
};

/// Known admission constraints.
#[derive(Debug, Default)]
pub struct Constraints {
    quotas: Known<QuotaRecord>,
    ranges: Known<LimitRangeRecord>,
    namespaces: Known<NamespaceRecord>,
}

impl Constraints {
    /// Resources for which quotas of the namespace require limits that no `LimitRange` defaults; `None` until both have
    /// been listed.
    pub fn limits(&self, namespace: &str) -> Option<BTreeSet<Box<str>>> {
        let quotas = self.quotas.of(namespace)?;
        let ranges = self.ranges.of(namespace)?;
        let given: BTreeSet<_> = ranges.iter().flat_map(|range| range.defaults()).collect();
        let mut limits: BTreeSet<_> = quotas.iter().flat_map(|quota| quota.limits()).collect();
        limits.retain(|name| !given.contains(name));
        Some(limits)
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
    pub(super) fn forget(&self, scope: &Scope) {
        self.quotas.forget(scope);
        self.ranges.forget(scope);
        self.namespaces.forget(scope);
    }
}

#[derive(Debug)]
pub(super) struct Known<R> {
    inner: Mutex<Inner<R>>,
}

#[derive(Debug)]
struct Inner<R> {
    records: HashMap<Key, Arc<R>>,
    /// Scopes whose first list is complete or forbidden.
    listed: HashSet<Scope>,
    /// Records that running lists have not shown yet.
    missing: HashMap<Scope, HashSet<Key>>,
}

impl<R> Default for Known<R> {
    fn default() -> Self {
        let inner = Inner {
            records: HashMap::new(),
            listed: HashSet::new(),
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

fn is_in(key: &Key, scope: &Scope) -> bool {
    scope.as_ref().is_none_or(|scope| scope == namespace(key))
}

impl<R: Record> Known<R> {
    fn size(&self) -> (Cow<'static, str>, usize) {
        (R::what(), self.inner.lock().records.len())
    }

    fn of(&self, name: &str) -> Option<Vec<Arc<R>>> {
        let inner = self.inner.lock();
        let is_listed = |scope: &Scope| scope.as_deref().is_none_or(|scope| scope == name);
        inner.listed.iter().any(is_listed).then(|| {
            let all = inner.records.iter();
            let of_it = all.filter(|(key, _)| **namespace(key) == *name);
            of_it.map(|(_, record)| Arc::clone(record)).collect()
        })
    }

    fn relisting(&self, scope: &Scope) {
        let mut inner = self.inner.lock();
        let keys = inner.records.keys().filter(|key| is_in(key, scope));
        let keys = keys.cloned().collect();
        inner.missing.insert(scope.clone(), keys);
    }

    /// Stores a record. Returns its namespace if it has changed after the first list was complete.
    fn show(&self, scope: &Scope, record: &Arc<R>) -> Option<Arc<str>> {
        let mut inner = self.inner.lock();
        let key = record.metadata().key.clone();
        if let Some(missing) = inner.missing.get_mut(scope) {
            missing.remove(&key);
        }
        let of = Arc::clone(namespace(&key));
        let before = inner.records.insert(key, Arc::clone(record));
        let differs = before.is_none_or(|before| before != *record);
        // The first list shows existing objects, which is not a change.
        (differs && inner.listed.contains(scope)).then_some(of)
    }

    fn removed(&self, record: &R) -> Option<Arc<str>> {
        let key = &record.metadata().key;
        let gone = self.inner.lock().records.remove(key);
        gone.map(|_| Arc::clone(namespace(key)))
    }

    /// Completes a list. Returns whether it is the first one in this scope, and the namespaces of deleted records.
    fn relisted(&self, scope: &Scope) -> (bool, Vec<Arc<str>>) {
        let mut inner = self.inner.lock();
        let missing = inner.missing.remove(scope).unwrap_or_default();
        let gone = missing.iter().map(|key| {
            inner.records.remove(key);
            Arc::clone(namespace(key))
        });
        let gone = gone.collect();
        (inner.listed.insert(scope.clone()), gone)
    }

    /// Treats the scope as listed although its first list fails, so that no constraint is assumed.
    fn failing(&self, scope: &Scope) {
        self.inner.lock().listed.insert(scope.clone());
    }

    fn forget(&self, scope: &Scope) {
        let mut inner = self.inner.lock();
        inner.listed.remove(scope);
        inner.missing.remove(scope);
        let Inner {
            records, listed, ..
        } = &mut *inner;
        records.retain(|key, _| listed.iter().any(|scope| is_in(key, scope)));
    }
}

/// A kind of constraint.
pub(super) trait Constraint: Record {
    /// The store of its records.
    fn known(constraints: &Constraints) -> &Known<Self>;
}

impl Constraint for QuotaRecord {
    fn known(constraints: &Constraints) -> &Known<Self> {
        &constraints.quotas
    }
}

impl Constraint for LimitRangeRecord {
    fn known(constraints: &Constraints) -> &Known<Self> {
        &constraints.ranges
    }
}

impl Constraint for NamespaceRecord {
    fn known(constraints: &Constraints) -> &Known<Self> {
        &constraints.namespaces
    }
}

/// A changed constraint requests a dry run for each binding in the namespace (SAFE-4).
impl<R: Constraint> WatchSink<R> for Bindings {
    fn relisting(&self, scope: &Scope) {
        R::known(&self.constraints).relisting(scope);
    }

    fn show(&self, scope: &Scope, seen: &Projected<R>) -> Vec<Enqueue> {
        let changed = R::known(&self.constraints).show(scope, &seen.record);
        changed.map_or_else(Vec::new, |namespace| self.judged_anew(namespace))
    }

    fn removed(&self, _: &Scope, seen: &Projected<R>) -> Vec<Enqueue> {
        let changed = R::known(&self.constraints).removed(&seen.record);
        changed.map_or_else(Vec::new, |namespace| self.judged_anew(namespace))
    }

    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let (first, gone) = R::known(&self.constraints).relisted(scope);
        if first {
            return self.bindings_in(scope);
        }
        let gone = gone.into_iter();
        gone.flat_map(|namespace| self.judged_anew(namespace))
            .collect()
    }

    fn failing(&self, scope: &Scope) {
        R::known(&self.constraints).failing(scope);
    }
}

impl Bindings {
    /// Requests a dry run for all bindings in the namespace, since their pods may be judged differently now.
    fn judged_anew(&self, namespace: Arc<str>) -> Vec<Enqueue> {
        let actors = self.index.actors_in(&Some(namespace));
        for actor in &actors {
            self.probes.request(actor);
        }
        actors.into_iter().map(Enqueue::Actor).collect()
    }
}

/// A controller that fails to create a target's pod requests a dry run, because the sidecar may be the reason (SAFE-4).
impl WatchSink<CreationFailureRecord> for Bindings {
    fn relisting(&self, _: &Scope) {}

    fn show(&self, _: &Scope, seen: &Projected<CreationFailureRecord>) -> Vec<Enqueue> {
        let failure = &seen.record;
        let Some(maker) = failure.maker.as_ref().filter(|_| is_recent(failure.last)) else {
            return Vec::new();
        };
        let actors = self.index.actors_made_by(&failure.namespace, maker);
        for actor in &actors {
            self.probes.request(actor);
        }
        actors.into_iter().map(Enqueue::Actor).collect()
    }

    fn removed(&self, _: &Scope, _: &Projected<CreationFailureRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
        Vec::new()
    }
}

/// How recent an Event has to be. The API server keeps Events for an hour, so a list also returns old ones.
const RECENT: SignedDuration = SignedDuration::from_mins(2);

fn is_recent(told: Timestamp) -> bool {
    Timestamp::now().duration_since(told) < RECENT
}

#[cfg(test)]
mod tests;
