//! A required entry fails closed only after a pod has come back injected (CFG-8): until then nobody has shown that the
//! API server reaches the webhook, trusts it, and gets from it what this actor's pods need.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use super::bindings::Bound;
use crate::binding::specimen::{self, Specimen, least_spec};
use crate::record::Key;

/// From the first try to the next; each further one waits twice as long.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// So many tries in a row fail before anybody is told.
const PATIENCE: u32 = 4;

/// What has been proved, and what was tried.
pub(super) struct Proofs {
    client: Client,
    /// By the actor's uid.
    tried: HashMap<Box<str>, Tried>,
    /// Entries that failed closed when this process began to lead: they stay so.
    inherited: Option<BTreeSet<Box<str>>>,
}

#[derive(Clone, Debug)]
struct Tried {
    /// It has come back injected: its entry may fail closed, whatever comes later.
    proved: bool,
    /// Which authorities were trusted when it last did. Others, or another release, are another matter.
    under: Option<Box<str>>,
    /// Tries that failed since.
    failures: u32,
    again: Instant,
}

/// What a round of proofs came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Something was proved that was not before.
    pub(super) proved: bool,
    /// When to try again.
    pub(super) again: Option<Duration>,
    /// How many were tried for long, and do not come back injected.
    pub(super) failing: usize,
    /// What users of an actor are to be told.
    pub(super) told: Vec<(Key, String)>,
}

impl Proofs {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            tried: HashMap::new(),
            inherited: None,
        }
    }

    /// Takes what entries say once, at the first look: later somebody else may have said so. Who is no longer required
    /// has to be proved again when it is.
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

    /// Tries those whose time has come, while these authorities are trusted. What was tried of others is forgotten.
    pub(super) async fn seek(&mut self, all: &[Bound], trusted: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let mut before = std::mem::take(&mut self.tried);
        for bound in all.iter().filter(|bound| bound.needs_proof()) {
            let known = before.remove(&bound.uid);
            let mut tried = known.unwrap_or_else(|| Tried {
                proved: bound
                    .required_entry()
                    .is_some_and(|entry| self.has("", &entry)),
                under: None,
                failures: 0,
                again: Instant::now(),
            });
            if tried.under.as_deref() != Some(trusted) {
                if tried.again <= Instant::now() {
                    self.try_again(bound, &mut tried, trusted, &mut outcome)
                        .await;
                }
                if tried.under.as_deref() != Some(trusted) {
                    let wait = tried.again.saturating_duration_since(Instant::now());
                    outcome.again = Some(outcome.again.map_or(wait, |soonest| soonest.min(wait)));
                    outcome.failing += usize::from(tried.failures >= PATIENCE);
                }
            }
            self.tried.insert(bound.uid.clone(), tried);
        }
        outcome
    }

    async fn try_again(
        &self,
        bound: &Bound,
        tried: &mut Tried,
        trusted: &str,
        outcome: &mut Outcome,
    ) {
        let Err(reason) = self.prove(bound).await else {
            if !tried.proved {
                info!(actor = %bound.key, "the webhook injects its pods: its entry fails closed from now on");
                outcome.proved = true;
            }
            (tried.proved, tried.failures) = (true, 0);
            tried.under = Some(trusted.into());
            return;
        };
        let wait = FIRST.saturating_mul(1 << tried.failures.min(8));
        tried.again = Instant::now() + wait.min(LONGEST);
        tried.failures += 1;
        if tried.failures == PATIENCE {
            let follows = if tried.proved {
                "its webhook entry stays fail-closed, so pods of its target may be refused"
            } else {
                "its webhook entry stays fail-open, so pods of its target may start without the sidecar"
            };
            warn!(actor = %bound.key, reason, follows, "required, and not proved");
            let text = format!("{follows}; look at the pods and logs of asya-webhook: {reason}");
            outcome.told.push((bound.key.clone(), text));
        }
    }

    async fn prove(&self, bound: &Bound) -> Result<(), String> {
        let pod = pod(bound).ok_or("no pod can be made up that would be one of its target's")?;
        let pod: Pod = serde_json::from_value(pod).map_err(|error| error.to_string())?;
        let answer = specimen::dry_run(&self.client, &bound.key.namespace, &pod).await;
        let answer = answer.map_err(|error| match error {
            kube::Error::Api(status) => status.message,
            error => error.to_string(),
        })?;
        specimen::judge(&answer, &bound.uid, bound.hash.as_deref())
            .map_err(|why| format!("a pod came back without the sidecar of this actor: {why}"))
    }
}

/// The least that is one of its target's pods.
fn pod(bound: &Bound) -> Option<Value> {
    let Specimen { labels, owner } = Specimen::of(&bound.pods, bound.family)?;
    Some(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "asya-proof-",
            "namespace": &*bound.key.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": least_spec(),
    }))
}

#[cfg(test)]
mod tests;
