//! Volumes that pods cannot mount. Only Events report them, and only repeated Events of the kubelet show that the
//! problem persists (STA-2).
//!
//! Keeps one entry per pod, however many Events report it, until the pod's containers start or the pod is deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use crate::cluster::store::{Scope, Store, covers};
use crate::cluster::watch::WatchSink;
use crate::record::{Enqueue, Key, PodEventRecord, PodRecord, Problem, Projected, Record};

/// The kubelet repeats an Event within 2 minutes and 2 seconds. A problem that it has not repeated for this long, while
/// it reported another one, is resolved.
const REPEATED: Duration = Duration::from_mins(5);

/// An Event may arrive before its pod: it is kept for this long without the pod.
const EARLY: Duration = Duration::from_secs(30);

/// Below this many entries, ended ones are not swept.
const SWEEP: usize = 1024;

/// Mount problems of pods, as reported by Events.
#[derive(Debug)]
pub struct Mounts {
    pods: Arc<Store<PodRecord>>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    of_pods: HashMap<Key, Trouble>,
    sweep_at: usize,
}

/// Mount problem of one pod.
#[derive(Debug)]
struct Trouble {
    pod_uid: Box<str>,
    since: Timestamp,
    told: Told,
    /// Another problem reported since.
    rival: Option<Told>,
}

#[derive(Clone, Debug, PartialEq)]
struct Told {
    problem: Problem,
    last: Timestamp,
}

impl Mounts {
    /// Keeps the mount problems of `pods`.
    pub fn of(pods: &Arc<Store<PodRecord>>) -> Self {
        let inner = Inner {
            of_pods: HashMap::new(),
            sweep_at: SWEEP,
        };
        Self {
            pods: Arc::clone(pods),
            inner: Mutex::new(inner),
        }
    }

    /// Adds a reported mount problem to the pod's record, unless a problem there takes precedence.
    pub fn complete(&self, pod: &mut Arc<PodRecord>) {
        if pod.mounted {
            return;
        }
        let problem = self.with(|inner| {
            let trouble = inner.of_pods.get(&pod.metadata.key)?;
            let same = trouble.pod_uid == pod.metadata.uid;
            same.then(|| trouble.told.problem.clone())
        });
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
        self.with(|inner| inner.of_pods.len())
    }

    /// Drops the entries of namespaces outside `scopes`.
    pub fn forget_all_but(&self, scopes: &BTreeSet<Scope>) {
        self.with(|inner| inner.of_pods.retain(|pod, _| covers(scopes, pod)));
    }

    /// Records an Event. Returns whom to enqueue, if it reports anything new.
    fn take(&self, event: &PodEventRecord, now: Timestamp) -> Enqueue {
        let Some(problem) = event.problem.clone() else {
            return Enqueue::Nobody;
        };
        let told = Told {
            problem,
            last: event.last,
        };
        let news = self.with(|inner| {
            if inner.of_pods.len() >= inner.sweep_at {
                inner.sweep(&self.pods, now);
            }
            inner.take(event, told, now)
        });
        // Look up the pod only now that the problem is stored: a pod that arrives later finds it there.
        let pod = self.pods.get(&event.pod).filter(|_| news);
        pod.filter(|pod| concerns(pod, &event.pod_uid))
            .map_or(Enqueue::Nobody, |pod| pod.concerns())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock())
    }
}

/// Whether an Event about the pod with this uid applies to `pod`.
fn concerns(pod: &PodRecord, uid: &str) -> bool {
    *pod.metadata.uid == *uid && !pod.mounted
}

impl Inner {
    fn take(&mut self, event: &PodEventRecord, told: Told, now: Timestamp) -> bool {
        match self.of_pods.get_mut(&event.pod) {
            Some(trouble) if trouble.pod_uid == event.pod_uid => trouble.add(told),
            Some(other) if other.told.last > told.last => false,
            _ => {
                let trouble = Trouble {
                    pod_uid: event.pod_uid.clone(),
                    since: now,
                    told,
                    rival: None,
                };
                self.of_pods.insert(event.pod.clone(), trouble);
                true
            }
        }
    }

    /// Drops ended entries.
    fn sweep(&mut self, pods: &Store<PodRecord>, now: Timestamp) {
        self.of_pods.retain(|key, trouble| match pods.get(key) {
            Some(pod) => concerns(&pod, &trouble.pod_uid),
            None => lies_within(EARLY, trouble.since, now),
        });
        self.sweep_at = SWEEP.max(2 * self.of_pods.len());
    }
}

impl Trouble {
    /// Returns whether the reported problem changed. Of several volumes, one represents the others as long as it is
    /// repeated: while a `ConfigMap` is missing, the kubelet also reports from time to time that not all volumes are
    /// mounted. Of several classes, the first takes precedence (STA-3).
    fn add(&mut self, told: Told) -> bool {
        if told.problem == self.told.problem {
            if told.last > self.told.last {
                self.told.last = told.last;
                self.rival = None;
            }
            return false;
        }
        let repeated = |rival: &Told| rival.problem == told.problem && rival.last < told.last;
        let counts_more = told.problem.class < self.told.problem.class
            && lies_within(REPEATED, told.last, self.told.last);
        let overcome = told.last > self.told.last
            && (self.rival.as_ref().is_some_and(repeated)
                || !lies_within(REPEATED, self.told.last, told.last));
        if counts_more || overcome {
            self.told = told;
            self.rival = None;
            return true;
        }
        let known = self
            .rival
            .as_ref()
            .is_some_and(|rival| rival.problem == told.problem);
        if told.last > self.told.last && !known {
            self.rival = Some(told);
        }
        false
    }
}

/// Whether at most `span` has passed from `then` to `now`.
fn lies_within(span: Duration, then: Timestamp, now: Timestamp) -> bool {
    then.checked_add(span).map_or(true, |ends| now <= ends)
}

/// The deletion of an Event means nothing: the API server drops it after an hour, and users delete Events. Only the pod
/// shows that a volume is mounted.
impl WatchSink<PodEventRecord> for Mounts {
    fn relisting(&self, _: &Scope) {}

    fn show(&self, _: &Scope, seen: &Projected<PodEventRecord>) -> Vec<Enqueue> {
        match self.take(&seen.record, Timestamp::now()) {
            Enqueue::Nobody => Vec::new(),
            concerns => vec![concerns],
        }
    }

    fn removed(&self, _: &Scope, _: &Projected<PodEventRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
