//! When the next dry run of a pod of each binding is due (SAFE-4, SAFE-5). Kept in memory: a restart asks anew for whatever
//! is not proved, and for nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::record::Key;

/// While the webhook or its configuration may not have heard of the latest status.
const SETTLING: Duration = Duration::from_secs(1);
/// Between two dry runs in the whole cluster while the webhook is not asked about pods; those that fail share it.
const UNASKED: Duration = Duration::from_secs(2);
const LONGEST_UNASKED: Duration = Duration::from_mins(1);
/// After a refusal, doubled with each further one.
const REFUSED: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_mins(5);
/// A controller whose pods are refused says so many times a second.
const LEAST: Duration = Duration::from_secs(2);

/// What keeps pods of a binding from having the sidecar, as the last dry run has shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The webhook was not asked about it, which is so for all actors while the webhook is away.
    Unasked(String),
    /// It came back without the sidecar for another reason.
    LeftAlone(String),
    /// The API server refuses it, with this answer.
    Refused(String),
}

/// When the next dry run of an actor is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Something has changed that pods are judged by.
    pub requested: bool,
    /// How long it has to wait; `None`: not at all.
    pub wait: Option<Duration>,
    /// How the last one failed.
    pub failed: Option<Failure>,
}

/// The dry runs of all bindings.
#[derive(Debug, Default)]
pub struct Probes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    of_actors: HashMap<Key, Entry>,
    /// The webhook answers again.
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
    /// Something has changed that pods of this actor are judged by.
    pub fn request(&self, actor: &Key) {
        let mut inner = self.lock();
        let entry = inner.of_actors.entry(actor.clone()).or_default();
        entry.requested = true;
        entry.failures = 0;
        entry.next = entry.asked.map(|asked| asked + LEAST);
    }

    /// When the actor's next dry run is due.
    pub fn turn(&self, actor: &Key) -> Turn {
        let inner = self.lock();
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

    /// A pod was admitted with the sidecar, so the webhook answers: whoever waits for that need not wait any longer.
    pub fn admitted(&self, actor: &Key) {
        let mut inner = self.lock();
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

    /// It was not. Answers how long to wait; what `settles` may be different in a moment.
    pub fn failed(&self, actor: &Key, failure: Failure, settles: bool) -> Duration {
        let mut inner = self.lock();
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
                let times = entry.failures.min(8);
                entry.failures += 1;
                REFUSED.saturating_mul(1 << times).min(LONGEST)
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

    /// Whoever was waiting for the webhook, since this was last asked.
    pub fn woken(&self) -> HashSet<Key> {
        std::mem::take(&mut self.lock().woken)
    }

    /// The actor is gone.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.lock();
        inner.of_actors.remove(actor);
        inner.woken.remove(actor);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
