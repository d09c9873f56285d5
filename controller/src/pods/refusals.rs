//! Pods that a `StatefulSet` may not create, because of a quota for example. A Deployment reports this in a condition,
//! a `StatefulSet` only by Events (STA-2).
//!
//! Keeps one entry per set, however many Events report it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::WatchSink;
use crate::record::{
    Enqueue, Key, Metadata, OfKind, PodRecord, Projected, Record, RefusalRecord, ReplicaFailure,
    WorkloadRecord,
};

/// The `StatefulSet` controller retries within 17 minutes, and may write one Event in 5 minutes: a refusal that is not
/// repeated for this long is over.
const REPEATED: Duration = Duration::from_mins(25);

/// An Event may arrive before its set: it is kept for this long without the set.
const EARLY: Duration = Duration::from_secs(30);

/// Below this many entries, ended ones are not swept.
const SWEEP: usize = 1024;

/// `StatefulSet`s whose pods are refused, as reported by Events.
#[derive(Debug)]
pub struct Refusals {
    sets: Arc<Store<OfKind<StatefulSet>>>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    of_sets: HashMap<Key, Refused>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Refused {
    set_uid: Box<str>,
    message: Box<str>,
    last: Timestamp,
    since: Timestamp,
}

/// Why a `StatefulSet` may not create its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// In the form of a Deployment's condition.
    pub failure: ReplicaFailure,
    /// When it stops counting, unless it is repeated.
    pub ends: Timestamp,
}

impl Refusals {
    /// Keeps the refusals of `sets`.
    pub fn of(sets: &Arc<Store<OfKind<StatefulSet>>>) -> Self {
        let inner = Inner {
            of_sets: HashMap::new(),
            sweep_at: SWEEP,
        };
        Self {
            sets: Arc::clone(sets),
            inner: Mutex::new(inner),
        }
    }

    /// Why `workload` has fewer pods than desired. A set that has all its pods, or has created another one since, is
    /// not refused any more.
    pub fn of_workload(
        &self,
        workload: &WorkloadRecord,
        pods: &[Arc<PodRecord>],
        now: Timestamp,
    ) -> Option<Refusal> {
        let metadata = &workload.metadata;
        self.with(|inner| {
            let refused = inner.of_sets.get(&metadata.key)?;
            if refused.set_uid != metadata.uid || has_all_pods(workload) {
                return None;
            }
            let made = pods.iter().filter_map(|pod| pod.created.as_ref());
            let ends = refused.ends();
            let is_over = ends <= now || made.map(|time| time.0).any(|made| made > refused.last);
            (!is_over).then(|| Refusal {
                failure: ReplicaFailure {
                    reason: "FailedCreate".into(),
                    message: refused.message.clone(),
                },
                ends,
            })
        })
    }

    /// Records the state of a workload: once it has all its pods, an earlier refusal is over for good.
    pub fn saw(&self, workload: &WorkloadRecord) {
        if has_all_pods(workload) {
            let Metadata { key, uid, .. } = &workload.metadata;
            self.with(|inner| {
                if inner.of_sets.get(key).is_some_and(|it| it.set_uid == *uid) {
                    inner.of_sets.remove(key);
                }
            });
        }
    }

    /// Number of sets with an entry.
    pub fn len(&self) -> usize {
        self.with(|inner| inner.of_sets.len())
    }

    /// Records an Event. Returns whom to enqueue, if it reports anything new.
    fn take(&self, event: &RefusalRecord, now: Timestamp) -> Enqueue {
        let news = self.with(|inner| {
            if inner.of_sets.len() >= inner.sweep_at {
                inner.sweep(&self.sets, now);
            }
            inner.take(event, now)
        });
        // Look up the set only now that the refusal is stored: a set that arrives later finds it there.
        let set = self.sets.get(&event.set).filter(|_| news);
        set.filter(|set| *set.record.metadata.uid == *event.set_uid)
            .map_or(Enqueue::Nobody, |set| set.concerns())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock())
    }
}

impl Inner {
    fn take(&mut self, event: &RefusalRecord, now: Timestamp) -> bool {
        let known = self.of_sets.get(&event.set);
        if known.is_some_and(|known| known.last >= event.last) {
            return false;
        }
        let told = known.is_some_and(|known| {
            known.set_uid == event.set_uid && known.message == event.message && known.ends() > now
        });
        let refused = Refused {
            set_uid: event.set_uid.clone(),
            message: event.message.clone(),
            last: event.last,
            since: now,
        };
        self.of_sets.insert(event.set.clone(), refused);
        !told
    }

    /// Drops ended entries.
    fn sweep(&mut self, sets: &Store<OfKind<StatefulSet>>, now: Timestamp) {
        self.of_sets.retain(|key, refused| match sets.get(key) {
            Some(set) => set.record.metadata.uid == refused.set_uid && refused.ends() > now,
            None => refused
                .since
                .checked_add(EARLY)
                .map_or(true, |ends| now <= ends),
        });
        self.sweep_at = SWEEP.max(2 * self.of_sets.len());
    }
}

fn has_all_pods(workload: &WorkloadRecord) -> bool {
    workload.total >= workload.desired && workload.observed_generation >= workload.generation
}

impl Refused {
    fn ends(&self) -> Timestamp {
        self.last.checked_add(REPEATED).unwrap_or(Timestamp::MAX)
    }
}

/// The deletion of an Event means nothing: the API server drops it after an hour, and users delete Events. Only the set
/// shows that a pod was created.
impl WatchSink<RefusalRecord> for Refusals {
    fn relisting(&self, _: &Scope) {}

    fn show(&self, _: &Scope, seen: &Projected<RefusalRecord>) -> Vec<Enqueue> {
        match self.take(&seen.record, Timestamp::now()) {
            Enqueue::Nobody => Vec::new(),
            concerns => vec![concerns],
        }
    }

    fn removed(&self, _: &Scope, _: &Projected<RefusalRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
