//! Schedule of each binding's probes, which are dry runs of pods (SAFE-4, SAFE-5). Kept in memory: a restart repeats
//! only the probes of bindings that are not verified yet.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use asya_shared::backoff::Backoff;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::binding::dry_run::ProbeFailure;
use crate::record::Key;

/// Retry interval while the webhook or its configuration might not have observed the latest status.
const WEBHOOK_LAG_RETRY: Duration = Duration::from_secs(1);
/// Cluster-wide interval between dry runs while the webhook is not called for pods; all actors whose probe fails for
/// this reason share it.
const NOT_CALLED_INTERVAL: Duration = Duration::from_secs(2);
const MAX_NOT_CALLED_INTERVAL: Duration = Duration::from_mins(1);
/// Initial backoff after a dry run that failed although the webhook was called, doubled with each further one.
const FAILURE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(30), Duration::from_mins(5));
/// Minimum interval between dry runs: a controller emits many Events per second while its pods are rejected.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// When an actor's next dry run is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextProbe {
    /// Whether something that affects the admission of pods has changed.
    pub requested: bool,
    /// How long to wait; `None` if it is due now.
    pub wait: Option<Duration>,
    /// How the last dry run failed.
    pub failed: Option<ProbeFailure>,
}

/// Dry run schedule of all bindings.
#[derive(Debug, Default)]
pub struct ProbeSchedule {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    of_actors: HashMap<Key, Entry>,
    /// Actors whose wait for the webhook has ended.
    unblocked: HashSet<Key>,
}

#[derive(Debug, Default)]
struct Entry {
    requested: bool,
    last_run: Option<Instant>,
    next: Option<Instant>,
    failures: u32,
    last_failure: Option<ProbeFailure>,
}

impl ProbeSchedule {
    /// Requests a dry run because something that affects the admission of the actor's pods has changed.
    pub fn request(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        let entry = inner.of_actors.entry(actor.clone()).or_default();
        entry.requested = true;
        entry.failures = 0;
        entry.next = entry.last_run.map(|last_run| last_run + MIN_INTERVAL);
    }

    /// Returns when the actor's next dry run is due.
    pub fn next_probe(&self, actor: &Key) -> NextProbe {
        let inner = self.inner.lock();
        let Some(entry) = inner.of_actors.get(actor) else {
            return NextProbe::default();
        };
        let wait = entry.next.map(|next| next - Instant::now());
        NextProbe {
            requested: entry.requested,
            wait: wait.filter(|wait| !wait.is_zero()),
            failed: entry.last_failure.clone(),
        }
    }

    /// Records that a pod was admitted with the sidecar. The webhook is up, so actors that wait for it are unblocked.
    pub fn record_admitted(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        let entry = Entry {
            last_run: Some(Instant::now()),
            ..Entry::default()
        };
        inner.of_actors.insert(actor.clone(), entry);
        let Inner {
            of_actors,
            unblocked,
        } = &mut *inner;
        for (key, entry) in of_actors.iter_mut() {
            if matches!(entry.last_failure, Some(ProbeFailure::NotCalled(_)))
                && entry.next.take().is_some()
            {
                unblocked.insert(key.clone());
            }
        }
    }

    /// Records a failed dry run. Returns how long to wait: only briefly if `webhook_may_lag`, because the webhook might
    /// not have observed the latest status yet.
    pub fn record_failure(
        &self,
        actor: &Key,
        failure: ProbeFailure,
        webhook_may_lag: bool,
    ) -> Duration {
        let mut inner = self.inner.lock();
        let not_called = inner.of_actors.iter().filter(|(key, entry)| {
            *key != actor && matches!(entry.last_failure, Some(ProbeFailure::NotCalled(_)))
        });
        let others = u32::try_from(not_called.count()).unwrap_or(u32::MAX);
        let entry = inner.of_actors.entry(actor.clone()).or_default();
        let wait = match failure {
            _ if webhook_may_lag => WEBHOOK_LAG_RETRY,
            ProbeFailure::NotCalled(_) => NOT_CALLED_INTERVAL
                .saturating_mul(others.saturating_add(1))
                .min(MAX_NOT_CALLED_INTERVAL),
            ProbeFailure::NotInjected(_) | ProbeFailure::Rejected(_) => {
                let wait = FAILURE_BACKOFF.after(entry.failures);
                entry.failures = entry.failures.saturating_add(1);
                wait
            }
        };
        let now = Instant::now();
        *entry = Entry {
            requested: false,
            last_run: Some(now),
            next: Some(now + wait),
            failures: entry.failures,
            last_failure: Some(failure),
        };
        wait
    }

    /// Takes the actors whose wait for the webhook has ended since the last call.
    pub fn take_unblocked(&self) -> HashSet<Key> {
        std::mem::take(&mut self.inner.lock().unblocked)
    }

    /// Drops a deleted actor.
    pub fn forget(&self, actor: &Key) {
        let mut inner = self.inner.lock();
        inner.of_actors.remove(actor);
        inner.unblocked.remove(actor);
    }
}

#[cfg(test)]
mod tests;
