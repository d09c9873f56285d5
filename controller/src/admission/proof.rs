//! A required entry fails closed only after a dry-run pod has come back injected (CFG-8). Until then nothing has shown
//! that the API server reaches the webhook, trusts it, and gets from it what this actor's pods need.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use asya_shared::backoff::Backoff;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::bindings::Bound;
use crate::binding::specimen::{self, PROBE_NAME, Shown, Specimen, least_spec};
use crate::record::Key;

/// Delay before the first retry; doubled for each further one.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Failures in a row before users are notified.
const PATIENCE: u32 = 4;

/// Concurrent dry runs. One that the webhook does not answer lasts until the API server stops waiting for it.
const MOST: usize = 4;
/// A failed dry run that took longer than this is blamed on the webhook, not on its pod.
const SLOW: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(15);

/// What has been proved, and the dry runs in flight. These run beside the reconcile: an entry that no longer has to
/// fail closed must never wait for a webhook that does not answer (SAFE-9).
pub(super) struct Proofs {
    client: Client,
    /// Keyed by the actor's uid.
    tried: HashMap<Box<str>, Tried>,
    /// Entries that failed closed when this process became leader; they stay so.
    inherited: Option<BTreeSet<Box<str>>>,
    running: JoinSet<Done>,
    /// Whether the last dry run failed slowly; if so, they run one at a time until the webhook answers.
    slow: bool,
}

#[derive(Clone, Debug)]
struct Tried {
    /// Whether a dry run came back injected: the entry may then fail closed, whatever happens later.
    proved: bool,
    /// CA bundle that was trusted at the last success. Another bundle, or another release, needs another proof.
    under: Option<Box<str>>,
    /// Failures since the last success.
    failures: u32,
    again: Instant,
    running: bool,
}

impl Tried {
    fn is_failing(&self, trusted: &str) -> bool {
        self.under.as_deref() != Some(trusted) && self.failures >= PATIENCE
    }
}

/// Result of a finished dry run.
pub(super) struct Done {
    key: Key,
    uid: Box<str>,
    trusted: Box<str>,
    result: Result<(), String>,
    took: Duration,
}

impl Proofs {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            tried: HashMap::new(),
            inherited: None,
            running: JoinSet::new(),
            slow: false,
        }
    }

    /// Reads which entries fail closed on the first call only: later, another client may have changed them. An entry
    /// that is no longer required needs a new proof when it is required again.
    pub(super) fn keep(&mut self, all: &[Bound], failing: impl FnOnce() -> BTreeSet<Box<str>>) {
        let inherited = self.inherited.get_or_insert_with(failing);
        let required: BTreeSet<_> = all.iter().filter_map(Bound::required_entry).collect();
        inherited.retain(|entry| required.contains(&**entry));
    }

    /// Whether the entry of the actor with this uid may fail closed.
    pub(super) fn has(&self, uid: &str, entry: &str) -> bool {
        let inherited = self.inherited.as_ref();
        self.tried.get(uid).is_some_and(|tried| tried.proved)
            || inherited.is_some_and(|all| all.contains(entry))
    }

    /// Starts the dry runs that are due while `trusted` is the CA bundle, up to the concurrency limit, and forgets
    /// actors that need no proof any more. Returns how long to wait for the next one. [`Proofs::next`] reports those
    /// that finish.
    pub(super) fn start(&mut self, all: &[Bound], trusted: &str) -> Option<Duration> {
        let mut before = std::mem::take(&mut self.tried);
        let mut soonest: Option<Duration> = None;
        for bound in all.iter().filter(|bound| bound.needs_proof()) {
            let known = before.remove(&bound.uid);
            let mut tried = known.unwrap_or_else(|| Tried {
                proved: bound
                    .required_entry()
                    .is_some_and(|entry| self.has("", &entry)),
                under: None,
                failures: 0,
                again: Instant::now(),
                running: false,
            });
            if tried.under.as_deref() != Some(trusted) && !tried.running {
                let wait = tried.again.saturating_duration_since(Instant::now());
                let most = if self.slow { 1 } else { MOST };
                if !wait.is_zero() {
                    soonest = Some(soonest.map_or(wait, |soonest| soonest.min(wait)));
                } else if self.running.len() < most {
                    tried.running = true;
                    self.spawn(bound, trusted);
                }
            }
            self.tried.insert(bound.uid.clone(), tried);
        }
        soonest
    }

    /// Number of bindings whose pods still do not come back injected after several dry runs.
    pub(super) fn failing(&self, trusted: &str) -> usize {
        let all = self.tried.values();
        all.filter(|tried| tried.is_failing(trusted)).count()
    }

    fn spawn(&mut self, bound: &Bound, trusted: &str) {
        let (client, bound, trusted) = (self.client.clone(), bound.clone(), trusted.into());
        self.running.spawn(async move {
            let begun = Instant::now();
            let proof = AssertUnwindSafe(prove(&client, &bound)).catch_unwind();
            let result = match timeout(DEADLINE, proof).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err("the dry run panicked; see the controller's log".to_owned()),
                Err(_) => Err("the API server did not respond in time".to_owned()),
            };
            Done {
                result,
                key: bound.key,
                uid: bound.uid,
                trusted,
                took: begun.elapsed(),
            }
        });
    }

    /// Waits for the next dry run to finish; pends forever while none runs.
    pub(super) async fn next(&mut self) -> Done {
        loop {
            match self.running.join_next().await {
                Some(Ok(done)) => return done,
                // Cancelled with the runtime: a panic is caught in the task.
                Some(Err(_)) => {}
                None => return std::future::pending().await,
            }
        }
    }

    /// Records a finished dry run. Returns the text of an Event for the actor's users, if they must be notified.
    pub(super) fn settle(&mut self, done: Done) -> Option<(Key, String)> {
        self.slow = done.result.is_err() && done.took >= SLOW;
        // The actor may not need a proof any more.
        let tried = self.tried.get_mut(&done.uid)?;
        tried.running = false;
        let Err(reason) = done.result else {
            if !tried.proved {
                info!(actor = %done.key, "injection proved: the webhook entry now fails closed");
            }
            (tried.proved, tried.failures) = (true, 0);
            tried.under = Some(done.trusted);
            return None;
        };
        tried.again = Instant::now() + RETRY.after(tried.failures);
        tried.failures += 1;
        (tried.failures == PATIENCE).then(|| {
            let follows = if tried.proved {
                "its webhook entry still fails closed, so pods of its target may be denied"
            } else {
                "its webhook entry still fails open, so pods of its target may start without the sidecar"
            };
            warn!(actor = %done.key, reason, follows, "injection of a required binding is not proved");
            let text = format!("{follows}; check the pods and logs of asya-webhook: {reason}");
            (done.key, text)
        })
    }
}

async fn prove(client: &Client, bound: &Bound) -> Result<(), String> {
    let pod = pod(bound).ok_or("cannot construct a pod that would match the target")?;
    let pod: Pod = serde_json::from_value(pod).map_err(|error| error.to_string())?;
    let pod = specimen::marked(&pod, &bound.uid);
    let part = (&*bound.uid, bound.hash.as_deref());
    match specimen::ask(client, &bound.key.namespace, &pod, part, true).await {
        Ok(Shown::Admitted) => Ok(()),
        Ok(Shown::Unasked(why) | Shown::LeftAlone(why)) => Err(format!(
            "a dry-run pod came back without this actor's sidecar: {why}"
        )),
        Ok(Shown::Refused(why)) => Err(why),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(error.to_string()),
    }
}

/// Minimal pod that counts as one of the target's pods.
fn pod(bound: &Bound) -> Option<Value> {
    let Specimen { labels, owner } = Specimen::of(&bound.pods, bound.family)?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": PROBE_NAME,
            "namespace": &*bound.key.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": least_spec(),
    }))
}

#[cfg(test)]
mod tests;
