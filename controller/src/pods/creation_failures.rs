//! Pods that a `StatefulSet` cannot create, because of a quota for example. A Deployment reports this in a condition,
//! a `StatefulSet` only by Events (STA-2).
//!
//! Keeps one entry per `StatefulSet`, regardless of the number of Events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asya_process::clock;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    Enqueue, Key, Metadata, PodRecord, Projected, Record, ReplicaFailure, StatefulSetFailureRecord,
    TypedWorkload, WorkloadRecord,
};

/// The `StatefulSet` controller retries within 17 minutes and writes at most one Event in 5 minutes, so a failure that
/// is not repeated for this long is resolved.
const RESOLVED_AFTER: Duration = Duration::from_mins(25);

/// How long to keep an Event that arrived before its `StatefulSet`.
const EARLY_EVENT_LIFETIME: Duration = Duration::from_secs(30);

/// Expired entries are swept only above this many entries.
const SWEEP: usize = 1024;

/// `StatefulSet`s that cannot create pods, as reported by Events.
#[derive(Debug)]
pub struct PodCreationFailures {
    sets: Arc<Store<TypedWorkload<StatefulSet>>>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    of_sets: HashMap<Key, ReportedFailure>,
    sweep_at: usize,
}

#[derive(Debug)]
struct ReportedFailure {
    set_uid: Box<str>,
    message: Box<str>,
    last: Timestamp,
    since: Timestamp,
}

/// Why a `StatefulSet` cannot create its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct PodCreationFailure {
    /// In the form of a Deployment's condition.
    pub failure: ReplicaFailure,
    /// When it expires, unless it is repeated.
    pub ends: Timestamp,
}

impl PodCreationFailures {
    /// Tracks the failures of `sets`.
    pub fn new(sets: &Arc<Store<TypedWorkload<StatefulSet>>>) -> Self {
        let inner = Inner {
            of_sets: HashMap::new(),
            sweep_at: SWEEP,
        };
        Self {
            sets: Arc::clone(sets),
            inner: Mutex::new(inner),
        }
    }

    /// Why `workload` has fewer pods than desired; `None` if it has all its pods, or has created one since the failure.
    pub fn of_workload(
        &self,
        workload: &WorkloadRecord,
        pods: &[Arc<PodRecord>],
        now: Timestamp,
    ) -> Option<PodCreationFailure> {
        let metadata = &workload.metadata;
        self.with(|inner| {
            let reported = inner.of_sets.get(&metadata.key)?;
            if reported.set_uid != metadata.uid || has_all_pods(workload) {
                return None;
            }
            let created = pods.iter().filter_map(|pod| pod.created.as_ref());
            let ends = reported.ends();
            let is_resolved = ends <= now
                || created
                    .map(|time| time.0)
                    .any(|created_at| created_at > reported.last);
            (!is_resolved).then(|| PodCreationFailure {
                failure: ReplicaFailure {
                    reason: "FailedCreate".into(),
                    message: reported.message.clone(),
                },
                ends,
            })
        })
    }

    /// Observes a workload: once it has all its pods, drops an earlier failure.
    pub fn record_workload(&self, workload: &WorkloadRecord) {
        if has_all_pods(workload) {
            let Metadata { key, uid, .. } = &workload.metadata;
            self.with(|inner| {
                if inner
                    .of_sets
                    .get(key)
                    .is_some_and(|reported| reported.set_uid == *uid)
                {
                    inner.of_sets.remove(key);
                }
            });
        }
    }

    /// Number of sets with an entry.
    pub fn len(&self) -> usize {
        self.with(|inner| inner.of_sets.len())
    }

    /// Records an Event. Returns the actor to enqueue, if the Event reports anything new.
    fn take(&self, event: &StatefulSetFailureRecord, now: Timestamp) -> Enqueue {
        let changed = self.with(|inner| {
            if inner.of_sets.len() >= inner.sweep_at {
                inner.sweep(&self.sets, now);
            }
            inner.take(event, now)
        });
        // Look up the set after storing the failure, so that a set that arrives concurrently finds it.
        let set = self.sets.get(&event.set).filter(|_| changed);
        set.filter(|set| *set.record.metadata.uid == *event.set_uid)
            .map_or(Enqueue::Nothing, |set| set.to_enqueue())
    }

    fn with<T>(&self, access: impl FnOnce(&mut Inner) -> T) -> T {
        access(&mut self.inner.lock())
    }
}

impl Inner {
    fn take(&mut self, event: &StatefulSetFailureRecord, now: Timestamp) -> bool {
        let known = self.of_sets.get(&event.set);
        if known.is_some_and(|known| known.last >= event.last) {
            return false;
        }
        let is_repetition = known.is_some_and(|known| {
            known.set_uid == event.set_uid && known.message == event.message && known.ends() > now
        });
        let reported = ReportedFailure {
            set_uid: event.set_uid.clone(),
            message: event.message.clone(),
            last: event.last,
            since: now,
        };
        self.of_sets.insert(event.set.clone(), reported);
        !is_repetition
    }

    /// Drops expired entries.
    fn sweep(&mut self, sets: &Store<TypedWorkload<StatefulSet>>, now: Timestamp) {
        self.of_sets.retain(|key, reported| match sets.get(key) {
            Some(set) => set.record.metadata.uid == reported.set_uid && reported.ends() > now,
            None => reported
                .since
                .checked_add(EARLY_EVENT_LIFETIME)
                .map_or(true, |ends| now <= ends),
        });
        self.sweep_at = SWEEP.max(2 * self.of_sets.len());
    }
}

fn has_all_pods(workload: &WorkloadRecord) -> bool {
    workload.total >= workload.desired && workload.observed_generation >= workload.generation
}

impl ReportedFailure {
    fn ends(&self) -> Timestamp {
        self.last
            .checked_add(RESOLVED_AFTER)
            .unwrap_or(Timestamp::MAX)
    }
}

/// Deletions of Events are ignored: the API server expires them after an hour, and users delete them. Only the set
/// shows that a pod was created.
impl WatchSink<StatefulSetFailureRecord> for PodCreationFailures {
    fn init(&self, _: &WatchScope) {}

    fn apply(&self, _: &WatchScope, event: &Projected<StatefulSetFailureRecord>) -> Vec<Enqueue> {
        match self.take(&event.record, clock::now()) {
            Enqueue::Nothing => Vec::new(),
            enqueue => vec![enqueue],
        }
    }

    fn delete(&self, _: &WatchScope, _: &Projected<StatefulSetFailureRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn init_done(&self, _: &WatchScope) -> Vec<Enqueue> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
