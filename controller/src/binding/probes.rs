//! Schedule of each binding's dry runs (SAFE-4, SAFE-5). Kept in memory: a restart repeats only the probes of what is
//! not proved yet.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use asya_shared::backoff::Backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::record::Key;

/// Retry interval while the webhook or its configuration may not have observed the latest status.
const SETTLING: Duration = Duration::from_secs(1);
/// Cluster-wide interval between dry runs while the webhook is not called for pods; all actors whose probe fails for
/// this reason share it.
const UNASKED: Duration = Duration::from_secs(2);
const LONGEST_UNASKED: Duration = Duration::from_mins(1);
/// Initial backoff after a rejection, doubled with each further one.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(5));
/// Minimum interval between probes: a controller whose pods are rejected emits many Events a second.
const LEAST: Duration = Duration::from_secs(2);

/// Why the last dry run of a binding's pod came back without the sidecar, or was rejected.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The webhook was not called. While it is down, this applies to all actors.
    Unasked(String),
    /// The pod came back without the sidecar for another reason.
    LeftAlone(String),
    /// The API server rejected the pod with this message.
    Refused(String),
}

/// When an actor's next dry run is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Whether something that pods are judged by has changed.
    pub requested: bool,
    /// How long to wait; `None` if it is due now.
    pub wait: Option<Duration>,
    /// How the last dry run failed.
    pub failed: Option<Failure>,
}

/// Dry run schedule of all bindings.
#[derive(Debug, Default)]
pub struct Probes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    of_actors: HashMap<Key, Entry>,
    /// Actors whose wait for the webhook has ended.
    woken: HashSet<Key>,
}

#[derive(Debug, Default)]
struct Entry {
    requested: bool,
    asked: Option<Instant>,
    next: Option<Instant>,
    failures: u32,
    failed: Option<Failure>,
}

impl Probes {
    /// Requests a dry run because something that the actor's pods are judged by has changed.
    pub fn request(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        let entry = inner.of_actors.entry(actor.clone()).or_default();
        entry.requested = true;
        entry.failures = 0;
        entry.next = entry.asked.map(|asked| asked + LEAST);
    }

    /// Returns when the actor's next dry run is due.
    pub fn turn(&self, actor: &Key) -> Turn {
        let inner = self.inner.lock();
        let Some(entry) = inner.of_actors.get(actor) else {
            return Turn::default();
        };
        let wait = entry.next.map(|next| next - Instant::now());
        Turn {
            requested: entry.requested,
            wait: wait.filter(|wait| !wait.is_zero()),
            failed: entry.failed.clone(),
        }
    }

    /// Records that a pod was admitted with the sidecar. The webhook is up, so actors that wait for it are woken.
    pub fn admitted(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        let entry = Entry {
            asked: Some(Instant::now()),
            ..Entry::default()
        };
        inner.of_actors.insert(actor.clone(), entry);
        let Inner { of_actors, woken } = &mut *inner;
        for (key, entry) in of_actors.iter_mut() {
            if matches!(entry.failed, Some(Failure::Unasked(_))) && entry.next.take().is_some() {
                woken.insert(key.clone());
            }
        }
    }

    /// Records a failed dry run. Returns how long to wait: only briefly if `settles`, because the webhook may not have
    /// observed the latest status.
    pub fn failed(&self, actor: &Key, failure: Failure, settles: bool) -> Duration {
        let mut inner = self.inner.lock();
        let unasked = inner.of_actors.iter().filter(|(key, entry)| {
            *key != actor && matches!(entry.failed, Some(Failure::Unasked(_)))
        });
        let others = u32::try_from(unasked.count()).unwrap_or(u32::MAX);
        let entry = inner.of_actors.entry(actor.clone()).or_default();
        let wait = match failure {
            _ if settles => SETTLING,
            Failure::Unasked(_) => UNASKED
                .saturating_mul(others.saturating_add(1))
                .min(LONGEST_UNASKED),
            Failure::LeftAlone(_) | Failure::Refused(_) => {
                let wait = REFUSED.after(entry.failures);
                entry.failures = entry.failures.saturating_add(1);
                wait
            }
        };
        let now = Instant::now();
        *entry = Entry {
            requested: false,
            asked: Some(now),
            next: Some(now + wait),
            failures: entry.failures,
            failed: Some(failure),
        };
        wait
    }

    /// Takes the actors whose wait for the webhook has ended since the last call.
    pub fn woken(&self) -> HashSet<Key> {
        std::mem::take(&mut self.inner.lock().woken)
    }

    /// Drops a deleted actor.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        inner.of_actors.remove(actor);
        inner.woken.remove(actor);
    }
}

#[cfg(test)]
mod tests;
