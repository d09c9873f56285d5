//! Volumes that pods cannot mount. Only Events report them, and only repeated Events of the kubelet show that the
//! problem persists (STA-2).
//!
//! An entry is kept until the pod's containers start or it is deleted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asya_process::clock;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use super::event_failures::{EventFailures, lies_within, may_be_early};
use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::{WatchScope, covers};
use crate::record::{Enqueue, PodEventRecord, PodRecord, Problem, Projected, Record};

/// The kubelet repeats an Event within 2 minutes and 2 seconds. A problem that it has not repeated for this long, while
/// it reported another one, is resolved.
const RESOLVED_AFTER: Duration = Duration::from_mins(5);

/// Mount problems of pods, as reported by Events.
#[derive(Debug)]
pub struct MountFailures {
    pods: Arc<Store<PodRecord>>,
    failures: Mutex<EventFailures<PodMountFailure>>,
}

/// Mount problem of one pod.
#[derive(Debug)]
struct PodMountFailure {
    pod_uid: Box<str>,
    since: Timestamp,
    reported: ProblemReport,
    /// Another problem reported since.
    candidate: Option<ProblemReport>,
}

#[derive(Clone, Debug, PartialEq)]
struct ProblemReport {
    problem: Problem,
    last: Timestamp,
}

impl MountFailures {
    /// Tracks the mount problems of `pods`.
    pub fn new(pods: &Arc<Store<PodRecord>>) -> Self {
        Self {
            pods: Arc::clone(pods),
            failures: Mutex::default(),
        }
    }

    /// Adds a reported mount problem to the pod's record, unless a problem there takes precedence.
    pub fn add_problem_to(&self, pod: &mut Arc<PodRecord>) {
        if pod.mounted {
            return;
        }
        let problem = {
            let failures = self.failures.lock();
            let failure = failures.get(&pod.metadata.key);
            let failure = failure.filter(|failure| failure.pod_uid == pod.metadata.uid);
            failure.map(|failure| failure.reported.problem.clone())
        };
        let Some(problem) = problem else { return };
        if pod
            .problem
            .as_ref()
            .is_none_or(|known| problem.class < known.class)
        {
            Arc::make_mut(pod).problem = Some(problem);
        }
    }

    /// Number of pods with an entry.
    pub fn len(&self) -> usize {
        self.failures.lock().len()
    }

    /// Drops the entries of namespaces outside `scopes`.
    pub fn retain_scopes(&self, scopes: &BTreeSet<WatchScope>) {
        self.failures.lock().retain(|pod, _| covers(scopes, pod));
    }

    /// Records an Event. Returns the actor to enqueue, if the Event reports anything new.
    fn record_event(&self, event: &PodEventRecord, now: Timestamp) -> Enqueue {
        let Some(problem) = event.problem.clone() else {
            return Enqueue::Nothing;
        };
        let report = ProblemReport {
            problem,
            last: event.last,
        };
        let changed = {
            let mut failures = self.failures.lock();
            failures.sweep(|key, failure| match self.pods.get(key) {
                Some(pod) => applies_to(&pod, &failure.pod_uid),
                None => may_be_early(failure.since, now),
            });
            record_report(&mut failures, event, report, now)
        };
        // Look up the pod after storing the problem, so that a pod that arrives concurrently finds it.
        let pod = self.pods.get(&event.pod).filter(|_| changed);
        pod.filter(|pod| applies_to(pod, &event.pod_uid))
            .map_or(Enqueue::Nothing, |pod| pod.to_enqueue())
    }
}

/// Whether an Event about the pod with this uid applies to `pod`.
fn applies_to(pod: &PodRecord, uid: &str) -> bool {
    *pod.metadata.uid == *uid && !pod.mounted
}

/// Returns whether the problem of the pod changed.
fn record_report(
    failures: &mut EventFailures<PodMountFailure>,
    event: &PodEventRecord,
    report: ProblemReport,
    now: Timestamp,
) -> bool {
    match failures.get_mut(&event.pod) {
        Some(failure) if failure.pod_uid == event.pod_uid => failure.add(report),
        Some(other) if other.reported.last > report.last => false,
        _ => {
            let failure = PodMountFailure {
                pod_uid: event.pod_uid.clone(),
                since: now,
                reported: report,
                candidate: None,
            };
            failures.insert(event.pod.clone(), failure);
            true
        }
    }
}

impl PodMountFailure {
    /// Returns whether the reported problem changed. Of several problems, the first is reported as long as it is
    /// repeated: while a `ConfigMap` is missing, the kubelet also reports from time to time that not all volumes are
    /// mounted. A problem of a higher class takes precedence (STA-3).
    fn add(&mut self, report: ProblemReport) -> bool {
        if report.problem == self.reported.problem {
            if report.last > self.reported.last {
                self.reported.last = report.last;
                self.candidate = None;
            }
            return false;
        }
        let repeated = |candidate: &ProblemReport| {
            candidate.problem == report.problem && candidate.last < report.last
        };
        let has_precedence = report.problem.class < self.reported.problem.class
            && lies_within(RESOLVED_AFTER, report.last, self.reported.last);
        let supersedes = report.last > self.reported.last
            && (self.candidate.as_ref().is_some_and(repeated)
                || !lies_within(RESOLVED_AFTER, self.reported.last, report.last));
        if has_precedence || supersedes {
            self.reported = report;
            self.candidate = None;
            return true;
        }
        let known = self
            .candidate
            .as_ref()
            .is_some_and(|candidate| candidate.problem == report.problem);
        if report.last > self.reported.last && !known {
            self.candidate = Some(report);
        }
        false
    }
}

/// Deletions of Events are ignored: the API server expires them after an hour, and users delete them. Only the pod
/// shows that a volume is mounted.
impl WatchSink<PodEventRecord> for MountFailures {
    fn init(&self, _: &WatchScope) {}

    fn apply(&self, _: &WatchScope, event: &Projected<PodEventRecord>) -> Vec<Enqueue> {
        match self.record_event(&event.record, clock::now()) {
            Enqueue::Nothing => Vec::new(),
            enqueue => vec![enqueue],
        }
    }

    fn delete(&self, _: &WatchScope, _: &Projected<PodEventRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn init_done(&self, _: &WatchScope) -> Vec<Enqueue> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
