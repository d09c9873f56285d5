//! Probes a pod of each required binding by a dry run, and makes its entry fail closed only after the pod has
//! come back injected (CFG-8). Until then nothing shows that the API server reaches the webhook, trusts it, and gets
//! from it what this actor's pods need.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use asya_shared::backoff::Backoff;
use asya_shared::probe::{PROBE_NAME_PREFIX, ProbeMetadata, Replaced, minimal_spec};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::bindings::WebhookBinding;
use crate::binding::dry_run::{self, DryRunOutcome, ExpectedSidecar, ProbeFailure};
use crate::record::Key;

/// Delay before the first retry; doubled for each further one.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// Consecutive failures before users are notified.
const FAILURES_BEFORE_EVENT: u32 = 4;

/// Concurrent dry runs. If the webhook does not respond, a dry run lasts until the API server times out.
const MAX_CONCURRENT: usize = 4;
/// A failed dry run that took longer than this is blamed on the webhook, not on its pod.
const SLOW_AFTER: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_secs(15);

/// Progress of each binding, and the dry runs in flight. These run concurrently with the reconcile: an entry that no
/// longer has to fail closed must never wait for a webhook that does not respond (SAFE-9).
pub(super) struct InjectionProbes {
    client: Client,
    /// Keyed by the actor's uid.
    by_uid: HashMap<Box<str>, ProbeProgress>,
    /// Entries that failed closed when this process became leader; they keep failing closed.
    inherited: Option<BTreeSet<Box<str>>>,
    running: JoinSet<FinishedProbe>,
    /// Whether the last dry run failed slowly; if so, they run one at a time until the webhook responds.
    slow: bool,
}

#[derive(Clone, Debug)]
struct ProbeProgress {
    /// Whether a dry run came back injected: the entry may then fail closed, whatever happens later.
    verified: bool,
    /// CA bundle at the last success. Another bundle, or another version, must be verified again.
    verified_ca_bundle: Option<Box<str>>,
    /// Failures since the last success.
    failures: u32,
    next_attempt: Instant,
    running: bool,
}

impl ProbeProgress {
    fn is_failing(&self, ca_bundle: &str) -> bool {
        self.verified_ca_bundle.as_deref() != Some(ca_bundle)
            && self.failures >= FAILURES_BEFORE_EVENT
    }
}

/// Result of a finished dry run.
pub(super) struct FinishedProbe {
    key: Key,
    uid: Box<str>,
    ca_bundle: Box<str>,
    result: Result<(), String>,
    took: Duration,
}

impl InjectionProbes {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            by_uid: HashMap::new(),
            inherited: None,
            running: JoinSet::new(),
            slow: false,
        }
    }

    /// On the first call only, reads which entries fail closed: later, another client may have changed them. An entry
    /// that stops being required must be verified again once it is required; `is_kept` says which entries stay although
    /// their binding is not known.
    pub(super) fn retain_required(
        &mut self,
        bindings: &[WebhookBinding],
        is_kept: impl Fn(&str) -> bool,
        fail_closed: impl FnOnce() -> BTreeSet<Box<str>>,
    ) {
        let inherited = self.inherited.get_or_insert_with(fail_closed);
        let required: BTreeSet<_> = bindings
            .iter()
            .filter_map(WebhookBinding::required_entry)
            .collect();
        inherited.retain(|entry| required.contains(&**entry) || is_kept(entry));
    }

    /// Whether the entry of the actor with this uid may fail closed.
    pub(super) fn is_verified(&self, uid: &str, entry: &str) -> bool {
        let inherited = self.inherited.as_ref();
        self.by_uid
            .get(uid)
            .is_some_and(|progress| progress.verified)
            || inherited.is_some_and(|all| all.contains(entry))
    }

    /// Starts the dry runs that are due with this CA bundle, up to the concurrency limit, and forgets
    /// actors that no longer need one. Returns how long to wait for the next one. [`InjectionProbes::next`] returns
    /// those that finish.
    pub(super) fn start(
        &mut self,
        bindings: &[WebhookBinding],
        ca_bundle: &str,
    ) -> Option<Duration> {
        let mut previous = std::mem::take(&mut self.by_uid);
        let mut soonest: Option<Duration> = None;
        for binding in bindings.iter().filter(|binding| binding.needs_probe()) {
            let known = previous.remove(&binding.uid);
            let mut progress = known.unwrap_or_else(|| ProbeProgress {
                verified: binding
                    .required_entry()
                    .is_some_and(|entry| self.is_verified("", &entry)),
                verified_ca_bundle: None,
                failures: 0,
                next_attempt: Instant::now(),
                running: false,
            });
            if progress.verified_ca_bundle.as_deref() != Some(ca_bundle) && !progress.running {
                let wait = progress
                    .next_attempt
                    .saturating_duration_since(Instant::now());
                let limit = if self.slow { 1 } else { MAX_CONCURRENT };
                if !wait.is_zero() {
                    soonest = Some(soonest.map_or(wait, |soonest| soonest.min(wait)));
                } else if self.running.len() < limit {
                    progress.running = true;
                    self.spawn(binding, ca_bundle);
                }
            }
            self.by_uid.insert(binding.uid.clone(), progress);
        }
        soonest
    }

    /// Number of bindings whose pods still do not come back injected after several dry runs.
    pub(super) fn failing_count(&self, ca_bundle: &str) -> usize {
        let all = self.by_uid.values();
        all.filter(|progress| progress.is_failing(ca_bundle))
            .count()
    }

    fn spawn(&mut self, binding: &WebhookBinding, ca_bundle: &str) {
        let client = self.client.clone();
        let binding = binding.clone();
        let ca_bundle = ca_bundle.into();
        self.running.spawn(async move {
            let started = Instant::now();
            let probe = AssertUnwindSafe(run_probe(&client, &binding)).catch_unwind();
            let result = match timeout(DEADLINE, probe).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err("the dry run panicked; see the controller's log".to_owned()),
                Err(_) => Err("the API server did not respond in time".to_owned()),
            };
            FinishedProbe {
                result,
                key: binding.key,
                uid: binding.uid,
                ca_bundle,
                took: started.elapsed(),
            }
        });
    }

    /// Waits for the next dry run to finish; pends forever while none runs.
    pub(super) async fn next(&mut self) -> FinishedProbe {
        loop {
            match self.running.join_next().await {
                Some(Ok(finished)) => return finished,
                // Cancelled with the runtime: a panic is caught in the task.
                Some(Err(_)) => {}
                None => return std::future::pending().await,
            }
        }
    }

    /// Records a finished dry run. Returns the text of an Event for the actor's users, if they must be notified.
    pub(super) fn record(&mut self, finished: FinishedProbe) -> Option<(Key, String)> {
        self.slow = finished.result.is_err() && finished.took >= SLOW_AFTER;
        // The actor may no longer need a dry run.
        let progress = self.by_uid.get_mut(&finished.uid)?;
        progress.running = false;
        let Err(reason) = finished.result else {
            if !progress.verified {
                info!(actor = %finished.key, "injection verified: the webhook entry now fails closed");
            }
            (progress.verified, progress.failures) = (true, 0);
            progress.verified_ca_bundle = Some(finished.ca_bundle);
            return None;
        };
        progress.next_attempt = Instant::now() + RETRY.after(progress.failures);
        progress.failures += 1;
        (progress.failures == FAILURES_BEFORE_EVENT).then(|| {
            let consequence = if progress.verified {
                "its webhook entry still fails closed, so pods of its target may be denied"
            } else {
                "its webhook entry still fails open, so pods of its target may start without the sidecar"
            };
            warn!(actor = %finished.key, reason, consequence, "injection of a required binding is not verified");
            let text = format!("{consequence}; check the pods and logs of asya-webhook: {reason}");
            (finished.key, text)
        })
    }
}

async fn run_probe(client: &Client, binding: &WebhookBinding) -> Result<(), String> {
    let pod = pod(binding).ok_or("cannot construct a pod that would match the target")?;
    let pod: Pod = serde_json::from_value(pod).map_err(|error| error.to_string())?;
    let pod = dry_run::with_probe_annotation(&pod, &binding.uid);
    let expected = ExpectedSidecar {
        actor_uid: &binding.uid,
        actor_hash: binding.hash.as_deref(),
    };
    match dry_run::run(
        client,
        &binding.key.namespace,
        &pod,
        expected,
        Replaced::NoPod,
    )
    .await
    {
        Ok(DryRunOutcome::Admitted) => Ok(()),
        Ok(DryRunOutcome::Failed(failure)) => Err(match failure {
            ProbeFailure::NotCalled(reason) | ProbeFailure::NotInjected(reason) => {
                format!("a dry-run pod came back without this actor's sidecar: {reason}")
            }
            ProbeFailure::Rejected(reason) => reason,
        }),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(error.to_string()),
    }
}

/// Minimal pod that counts as one of the target's pods.
fn pod(binding: &WebhookBinding) -> Option<Value> {
    let ProbeMetadata { labels, owner } = ProbeMetadata::of(&binding.pods, binding.integration)?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": PROBE_NAME_PREFIX,
            "namespace": &*binding.key.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": minimal_spec(),
    }))
}

#[cfg(test)]
mod tests;
