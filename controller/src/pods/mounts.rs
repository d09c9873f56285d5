//! Volumes that pods cannot mount: only Events tell of them, and only the kubelet's next ones that it
//! still is so (STA-2).
//!
//! One entry per pod is kept, whatever number of Events tells of it, until the pod's containers start or
//! the pod is gone.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::store::{Scope, Store, covers};
use crate::cluster::watch::WatchSink;
use crate::record::{Enqueue, Key, PodEventRecord, PodRecord, Problem, Record, Seen};

/// The kubelet repeats itself within 2 minutes and 2 seconds: who has been silent for this long, while it told
/// of something else, has been overcome.
const REPEATED: Duration = Duration::from_mins(5);

/// An Event may come before its pod: until then it is kept for this long.
const EARLY: Duration = Duration::from_secs(30);

/// With fewer entries nothing is searched for those that have ended.
const SWEEP: usize = 1024;

/// What Events tell of pods that cannot mount a volume.
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

/// What is wrong with one pod.
#[derive(Debug)]
struct Trouble {
    pod_uid: Box<str>,
    since: Timestamp,
    told: Told,
    /// Something else that has been told since.
    rival: Option<Told>,
}

#[derive(Clone, Debug, PartialEq)]
struct Told {
    problem: Problem,
    last: Timestamp,
}

impl Mounts {
    /// Those of these pods.
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

    /// Adds to a pod's record what Events tell of it.
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

    /// Pods of which something is kept.
    pub fn len(&self) -> usize {
        self.with(|inner| inner.of_pods.len())
    }

    /// Drops what is kept of every namespace that no longer is in one of `scopes`.
    pub fn forget_all_but(&self, scopes: &BTreeSet<Scope>) {
        self.with(|inner| inner.of_pods.retain(|pod, _| covers(scopes, pod)));
    }

    /// Takes an Event. Answers whom it concerns, if it tells anything new.
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
        // After it is kept: a pod that comes later finds it.
        let pod = self.pods.get(&event.pod).filter(|_| news);
        pod.filter(|pod| concerns(pod, &event.pod_uid))
            .map_or(Enqueue::Nobody, |pod| pod.concerns())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether an Event about the pod of this uid tells anything of this one.
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

    /// Drops what has ended.
    fn sweep(&mut self, pods: &Store<PodRecord>, now: Timestamp) {
        self.of_pods.retain(|key, trouble| match pods.get(key) {
            Some(pod) => concerns(&pod, &trouble.pod_uid),
            None => lies_within(EARLY, trouble.since, now),
        });
        self.sweep_at = SWEEP.max(2 * self.of_pods.len());
    }
}

impl Trouble {
    /// Answers whether it speaks of something else from now on. Of several volumes one speaks for the others,
    /// as long as it is repeated: while a `ConfigMap` is missing, the kubelet tells from time to time that
    /// not all volumes are there, too. Of several classes the first counts (STA-3).
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

/// Whether no more than `span` has passed from `then` to `now`.
fn lies_within(span: Duration, then: Timestamp, now: Timestamp) -> bool {
    then.checked_add(span).map_or(true, |ends| now <= ends)
}

/// The API server drops an Event after an hour, and people delete them: that a volume is mounted shows at the
/// pod alone.
impl WatchSink<PodEventRecord> for Mounts {
    fn relisting(&self, _: &Scope) {}

    fn show(&self, _: &Scope, seen: &Seen<PodEventRecord>) -> Vec<Enqueue> {
        match self.take(&seen.record, Timestamp::now()) {
            Enqueue::Nobody => Vec::new(),
            concerns => vec![concerns],
        }
    }

    fn removed(&self, _: &Scope, _: &Seen<PodEventRecord>) -> Vec<Enqueue> {
        Vec::new()
    }

    fn relisted(&self, _: &Scope) -> Vec<Enqueue> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
