//! Pods that a `StatefulSet` is not allowed to make, by a quota for example: a Deployment has a condition for that, of
//! a `StatefulSet` only Events tell (STA-2).
//!
//! One entry per set is kept, whatever number of Events tells of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;

use crate::cluster::store::{Scope, Store};
use crate::cluster::watch::WatchSink;
use crate::record::{
    Enqueue, Key, OfKind, PodRecord, Record, RefusalRecord, ReplicaFailure, Seen, WorkloadRecord,
};

/// The controller of `StatefulSet`s tries again within 17 minutes, and may write one Event in 5: who has been silent
/// for this long is not refused any more.
const REPEATED: Duration = Duration::from_mins(25);

/// An Event may come before its set: until then it is kept for this long.
const EARLY: Duration = Duration::from_secs(30);

/// With fewer entries nothing is searched for those that have ended.
const SWEEP: usize = 1024;

/// What Events tell of `StatefulSet`s whose pods are refused.
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

/// What keeps pods of a `StatefulSet` from being made.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// As a Deployment would tell it.
    pub failure: ReplicaFailure,
    /// When it no longer counts, unless it is repeated.
    pub ends: Timestamp,
}

impl Refusals {
    /// Those of these sets.
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

    /// What keeps `workload` from having as many pods as it should. Who has them all, or has had another one made
    /// since, is not refused any more.
    pub fn of_workload(
        &self,
        workload: &WorkloadRecord,
        pods: &[Arc<PodRecord>],
        now: Timestamp,
    ) -> Option<Refusal> {
        let metadata = &workload.metadata;
        let has_all = workload.total >= workload.desired
            && workload.observed_generation >= workload.generation;
        self.with(|inner| {
            let refused = inner.of_sets.get(&metadata.key)?;
            if refused.set_uid != metadata.uid {
                return None;
            }
            if has_all {
                inner.of_sets.remove(&metadata.key);
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

    /// Sets of which something is kept.
    pub fn len(&self) -> usize {
        self.with(|inner| inner.of_sets.len())
    }

    /// Takes an Event. Answers whom it concerns, if it tells anything new.
    fn take(&self, event: &RefusalRecord, now: Timestamp) -> Enqueue {
        let news = self.with(|inner| {
            if inner.of_sets.len() >= inner.sweep_at {
                inner.sweep(&self.sets, now);
            }
            inner.take(event, now)
        });
        // After it is kept: a set that comes later finds it.
        let set = self.sets.get(&event.set).filter(|_| news);
        set.filter(|set| *set.record.metadata.uid == *event.set_uid)
            .map_or(Enqueue::Nobody, |set| set.concerns())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
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

    /// Drops what has ended.
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

impl Refused {
    fn ends(&self) -> Timestamp {
        self.last.checked_add(REPEATED).unwrap_or(Timestamp::MAX)
    }
}

/// The API server drops an Event after an hour, and people delete them: that a pod is made shows at the set alone.
impl WatchSink<RefusalRecord> for Refusals {
    fn relisting(&self, _: &Scope) {}

    fn show(&self, _: &Scope, seen: &Seen<RefusalRecord>) -> Vec<Enqueue> {
        match self.take(&seen.record, Timestamp::now()) {
            Enqueue::Nobody => Vec::new(),
            concerns => vec![concerns],
        }
    }

    fn removed(&self, _: &Scope, _: &Seen<RefusalRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
