//! Pods that a `StatefulSet` cannot create, because of a quota for example. A Deployment reports this in a condition,
//! a `StatefulSet` only by Events (STA-2).

use std::sync::Arc;
use std::time::Duration;

use asya_process::clock;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use super::event_failures::{EventFailures, may_be_early};
use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    Enqueue, Metadata, PodRecord, Projected, Record, ReplicaFailure, StatefulSetFailureRecord,
    TypedWorkload, WorkloadRecord,
};

/// The `StatefulSet` controller retries within 17 minutes and writes at most one Event in 5 minutes, so a failure that
/// is not repeated for this long is resolved.
const RESOLVED_AFTER: Duration = Duration::from_mins(25);

/// `StatefulSet`s that cannot create pods, as reported by Events.
#[derive(Debug)]
pub struct PodCreationFailures {
    sets: Arc<Store<TypedWorkload<StatefulSet>>>,
    failures: Mutex<EventFailures<ReportedFailure>>,
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
        Self {
            sets: Arc::clone(sets),
            failures: Mutex::default(),
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
        let failures = self.failures.lock();
        let reported = failures.get(&metadata.key)?;
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
    }

    /// Observes a workload: once it has all its pods, drops an earlier failure.
    pub fn record_workload(&self, workload: &WorkloadRecord) {
        if has_all_pods(workload) {
            let Metadata { key, uid, .. } = &workload.metadata;
            self.failures
                .lock()
                .remove_if(key, |reported| reported.set_uid == *uid);
        }
    }

    /// Number of sets with an entry.
    pub fn len(&self) -> usize {
        self.failures.lock().len()
    }

    /// Records an Event. Returns the actor to enqueue, if the Event reports anything new.
    fn take(&self, event: &StatefulSetFailureRecord, now: Timestamp) -> Enqueue {
        let changed = {
            let mut failures = self.failures.lock();
            failures.sweep(|key, reported| match self.sets.get(key) {
                Some(set) => set.record.metadata.uid == reported.set_uid && reported.ends() > now,
                None => may_be_early(reported.since, now),
            });
            record_event(&mut failures, event, now)
        };
        // Look up the set after storing the failure, so that a set that arrives concurrently finds it.
        let set = self.sets.get(&event.set).filter(|_| changed);
        set.filter(|set| *set.record.metadata.uid == *event.set_uid)
            .map_or(Enqueue::Nothing, |set| set.to_enqueue())
    }
}

/// Returns whether the Event reports anything new.
fn record_event(
    failures: &mut EventFailures<ReportedFailure>,
    event: &StatefulSetFailureRecord,
    now: Timestamp,
) -> bool {
    let known = failures.get(&event.set);
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
    failures.insert(event.set.clone(), reported);
    !is_repetition
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
