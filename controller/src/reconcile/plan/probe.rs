//! Dry runs of pods with the sidecar: whether one is due now (SAFE-4), and what a rollout step still waits for (ROLL-2).

use std::time::Duration;

use asya_shared::inject::bound::Gate;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::roll::facts::{Act, Rolling};
use crate::binding::probes::{Failure, Turn};
use crate::fault::{Reason, Requeue};
use crate::reconcile::injection::Probed;
use crate::reconcile::model::bound_pods::{BoundPods, actor_part};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ProbeState, Rolled};

/// How long the webhook may lag behind a status, and the API server behind the webhook's configuration.
const SETTLES: Duration = Duration::from_secs(20);

/// A dry run reaches one replica of the webhook. After this time the others have also read the status that opened the
/// gate; a pod that one of them does not inject would have to be replaced again.
const HEARD: Duration = Duration::from_secs(1);

/// Inputs to [`decide`].
#[derive(Clone, Copy, Debug)]
pub struct ProbeFacts {
    /// It would show something that status does not.
    pub wanted: bool,
    /// Something that affects the admission of pods has changed.
    pub requested: bool,
    /// How long it still has to wait.
    pub wait: Option<Duration>,
}

/// The decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probing {
    /// None: the last result still holds.
    #[default]
    Rest,
    /// Make one now.
    Ask,
    /// Make one after this delay.
    Wait(Duration),
}

/// Decides for one binding.
pub fn decide(facts: ProbeFacts) -> Probing {
    match facts.wait {
        _ if !facts.wanted && !facts.requested => Probing::Rest,
        Some(wait) => Probing::Wait(wait),
        None => Probing::Ask,
    }
}

/// What the dry runs of a binding and the rollout step that depends on them need.
#[derive(Clone, Debug, Default)]
pub struct ProbeInputs {
    /// UID of the actor.
    pub uid: Box<str>,
    /// The actor part of the hash that pods should carry.
    pub part: Option<String>,
    /// A pod of the target; `None` if none can be constructed.
    pub pod: Option<Box<Pod>>,
    /// The target has all the pods it asks for, as far as that number is known.
    pub complete: bool,
    /// Whether the webhook injects the sidecar, according to status.
    pub gate: Option<Gate>,
    /// The operator runs with its webhook.
    pub webhook: bool,
    /// Since when status reports this gate.
    gate_since: Option<Timestamp>,
    /// When status last changed in something that the webhook reads.
    status_since: Option<Timestamp>,
}

/// Whether a rollout step may be taken.
#[derive(Debug, PartialEq)]
pub enum StepGate {
    Open,
    /// Only if a dry run shows that new pods get the sidecar.
    Probe,
    /// Not now, with this outcome; the next dry run is due after this delay.
    Closed(Rolled, Option<Duration>),
}

impl ProbeInputs {
    pub fn new(observed: &Observed) -> Self {
        let previous = &observed.previous;
        let hash = observed.bound().and_then(|it| it.injected_hash.as_deref());
        let pod = observed.probe_pod();
        let injection = previous.injection.as_ref();
        let gate_since = injection.and_then(|it| it.since.as_ref()).map(|it| it.0);
        let bound_since = previous.bound_since.as_ref().map(|it| it.0);
        Self {
            uid: observed.actor.metadata.uid.clone(),
            part: actor_part(hash).map(str::to_owned),
            pod: pod.and_then(|pod| serde_json::from_value(pod.clone()).ok()),
            complete: is_complete(observed),
            gate: observed.gate(),
            webhook: observed.webhook,
            gate_since,
            status_since: bound_since.max(gate_since),
        }
    }

    /// Whether the webhook may not have read the latest status yet.
    pub fn settles(&self, now: Timestamp) -> bool {
        let last = self.status_since;
        last.is_some_and(|last| now.duration_since(last).unsigned_abs() < SETTLES)
    }

    /// Decides after the dry run that was due; `turn` is the schedule of the next one.
    pub fn before_step(
        &self,
        rolling: &Rolling,
        (probe, turn): (&ProbeState, &Turn),
        now: Timestamp,
    ) -> StepGate {
        if self.is_closed(&probe.outcome) {
            // Keep what earlier steps recorded: a gate that opens and closes must not restart pods each time (ROLL-5).
            return StepGate::Closed(Rolled::Untouched, None);
        }
        let Rolling::Act(act) = rolling else {
            return StepGate::Open;
        };
        if !self.webhook {
            return StepGate::Closed(no_webhook(), None);
        }
        match (&probe.outcome, &self.gate) {
            (Probed::Admitted, _) if *act == Act::Prove => StepGate::Closed(Rolled::Proved, None),
            (Probed::NotInjected(_), _) | (Probed::Untried, Some(Gate::Unproved)) => {
                StepGate::Closed(self.failed(probe, turn, now), None)
            }
            // Pods are injected once the webhook has read the status of this reconcile.
            (Probed::Admitted, Some(Gate::Unproved | Gate::Refused(_))) => {
                StepGate::Closed(begins(HEARD), None)
            }
            _ => match (self.unheard(now), turn.wait, &turn.failed) {
                (Some(wait), ..) => StepGate::Closed(begins(wait), None),
                (None, Some(wait), Some(_)) => {
                    let probe = ProbeState {
                        again: Some(wait),
                        outcome: probe.outcome.clone(),
                    };
                    StepGate::Closed(self.failed(&probe, turn, now), Some(wait))
                }
                _ => StepGate::Probe,
            },
        }
    }

    /// Decides after the dry run for the step itself.
    pub fn after_step_probe(
        &self,
        (probe, turn): (&ProbeState, &Turn),
        now: Timestamp,
    ) -> StepGate {
        match &probe.outcome {
            Probed::Untried | Probed::Admitted => StepGate::Open,
            Probed::NotInjected(_) => StepGate::Closed(self.failed(probe, turn, now), None),
            Probed::Refused(_) => StepGate::Closed(Rolled::Untouched, None),
        }
    }

    fn is_closed(&self, probed: &Probed) -> bool {
        match probed {
            Probed::Refused(_) => true,
            Probed::Admitted => false,
            Probed::Untried | Probed::NotInjected(_) => {
                matches!(self.gate, Some(Gate::Refused(_)))
            }
        }
    }

    /// How long a replica of the webhook may still not have read the gate from the status.
    fn unheard(&self, now: Timestamp) -> Option<Duration> {
        let age = Duration::try_from(now.duration_since(self.gate_since?)).ok()?;
        // Timestamps in the status have second precision.
        let left = (HEARD + Duration::from_secs(1)).checked_sub(age)?;
        (!left.is_zero()).then_some(left)
    }

    /// Why the rollout waits, from the last failed dry run.
    fn failed(&self, probe: &ProbeState, turn: &Turn, now: Timestamp) -> Rolled {
        let why = match (&probe.outcome, &turn.failed) {
            (Probed::NotInjected(why), _)
            | (_, Some(Failure::Unasked(why) | Failure::LeftAlone(why))) => why.clone(),
            _ => "no dry run has shown yet that new ones get the sidecar".to_owned(),
        };
        let waits = match turn.failed {
            Some(Failure::Unasked(_)) => {
                "; waiting for the webhook, which is tried again every few seconds"
            }
            _ => "",
        };
        let text = format!("no pod is replaced: a new one would have no sidecar: {why}{waits}");
        let reason = if self.settles(now) {
            Reason::PodsNotInjected
        } else {
            Reason::ProbeFailed
        };
        let again = probe.again.map_or(Requeue::SlowBackoff, Requeue::After);
        Rolled::Waits(reason, text, again)
    }
}

fn begins(wait: Duration) -> Rolled {
    let text = "pods with the sidecar are admitted; replacing those without it begins in a moment";
    Rolled::Waits(
        Reason::RolloutInProgress,
        text.to_owned(),
        Requeue::After(wait),
    )
}

fn no_webhook() -> Rolled {
    let text = "the operator runs without its webhook, so no pod gets the sidecar; install it (webhook.enabled)";
    Rolled::Waits(
        Reason::WebhookNotReady,
        text.to_owned(),
        Requeue::AwaitChange,
    )
}

/// Whether the target has all the pods it asks for, as far as that number is known.
pub fn is_complete(observed: &Observed) -> bool {
    let asked_for = observed.resolved().and_then(|it| it.replicas);
    let pods = observed.binding.as_ref().and_then(|it| it.pods.as_ref());
    let seen = observed.rollout().map(|seen| seen.counted.pods.matched);
    let seen = seen.or_else(|| pods.map(BoundPods::staying));
    let lacks = asked_for
        .zip(seen)
        .is_some_and(|(asked_for, seen)| seen < asked_for);
    !lacks
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ProbeFacts, Probing, decide};

    /// SAFE-4
    #[test]
    fn dry_run_is_made_when_it_is_useful_and_due() {
        let later = Duration::from_secs(30);
        for (wanted, requested, wait, probing) in [
            (false, false, None, Probing::Rest),
            (false, false, Some(later), Probing::Rest),
            (true, false, None, Probing::Ask),
            (false, true, None, Probing::Ask),
            (true, false, Some(later), Probing::Wait(later)),
            (true, true, Some(later), Probing::Wait(later)),
        ] {
            let facts = ProbeFacts {
                wanted,
                requested,
                wait,
            };
            assert_eq!(decide(facts), probing, "{facts:?}");
        }
    }
}
