//! Plans dry runs of pods with the sidecar: when one is due (SAFE-4), and what blocks a rollout step (ROLL-2).

use std::time::Duration;

use asya_shared::inject::bound::ProbeResult;
use asya_shared::probe::Replaced;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::rollout::inputs::{RolloutAction, RolloutDecision};
use crate::binding::dry_run::ProbeFailure;
use crate::binding::probe_schedule::NextProbe;
use crate::clock_skew::MAX_CLOCK_SKEW;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ProbeOutcome, ProbeState, RolloutOutcome};
use crate::reconcile::model::target_pods::{TargetPods, actor_hash};

/// How long the webhook may lag behind a status, and the API server behind the webhook's configuration.
const WEBHOOK_LAG: SignedDuration = SignedDuration::from_secs(20);

/// How long it takes every replica of the webhook to read an admitted probe from the status. A dry run reaches only one
/// of them, and a pod that another does not inject would have to be replaced again.
const STATUS_PROPAGATION: Duration = Duration::from_secs(1);

/// Inputs to [`decide`].
#[derive(Clone, Copy, Debug)]
pub struct ProbeInputs {
    /// A probe would show something that status does not.
    pub needed: bool,
    /// Something that affects the admission of pods has changed.
    pub requested: bool,
    /// Remaining delay until the next probe is allowed.
    pub wait: Option<Duration>,
}

/// When to make the next dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeStep {
    /// None: the last result is still valid.
    #[default]
    Skip,
    /// Make one now.
    Run,
    /// Make one after this delay.
    Wait(Duration),
}

/// A step with the parameters for its execution.
#[derive(Debug)]
pub struct PlannedProbe {
    pub step: ProbeStep,
    pub params: ProbeParams,
}

/// Plans whether to make a dry run of a pod of the target.
pub(super) fn plan_probe(observed: &Observed) -> PlannedProbe {
    let probe = observed.injection().and_then(|it| it.probe.as_ref());
    let step = probe.map_or(ProbeStep::Skip, |probe| {
        decide(ProbeInputs {
            needed: probe.needed,
            requested: probe.next_probe.requested,
            wait: probe.next_probe.wait,
        })
    });
    PlannedProbe {
        step,
        params: ProbeParams::new(observed),
    }
}

pub fn decide(inputs: ProbeInputs) -> ProbeStep {
    match inputs.wait {
        _ if !inputs.needed && !inputs.requested => ProbeStep::Skip,
        Some(wait) => ProbeStep::Wait(wait),
        None => ProbeStep::Run,
    }
}

/// Parameters for the dry runs of a binding, and for the rollout step that depends on them.
#[derive(Clone, Debug, Default)]
pub struct ProbeParams {
    pub uid: Box<str>,
    /// The actor hash that pods should carry.
    pub actor_hash: Option<String>,
    /// A pod of the target; `None` if none can be constructed.
    pub pod: Option<Box<Pod>>,
    /// What a new pod of the target replaces.
    pub replaced: Replaced,
    /// Whether the webhook injects the sidecar, according to status.
    pub probe_result: Option<ProbeResult>,
    /// The operator runs with its webhook.
    pub webhook: bool,
    /// Since when status reports this probe result.
    probe_result_since: Option<Timestamp>,
    /// When status last changed in a field that the webhook reads.
    status_since: Option<Timestamp>,
}

/// What is known about a rollout step before its own dry run.
#[derive(Debug, PartialEq)]
pub enum StepCheck {
    Decided(StepReadiness),
    /// Only a dry run shows whether new pods get the sidecar.
    NeedsProbe,
}

/// Whether a rollout step may be taken.
#[derive(Debug, PartialEq)]
pub enum StepReadiness {
    Ready,
    /// Not now.
    Blocked {
        outcome: RolloutOutcome,
        /// Time until the next dry run is due, if this is not the time that the last one returned.
        next_probe_in: Option<Duration>,
    },
}

impl StepReadiness {
    fn blocked(outcome: RolloutOutcome) -> Self {
        Self::Blocked {
            outcome,
            next_probe_in: None,
        }
    }
}

/// What a failed dry run shows.
#[derive(Debug)]
pub struct FailedProbe {
    pub outcome: ProbeOutcome,
    /// The next one may pass soon, because the webhook may not have read the latest status yet.
    pub may_pass_soon: bool,
}

impl ProbeParams {
    pub fn new(observed: &Observed) -> Self {
        let previous = &observed.previous;
        let hash = observed
            .desired_binding()
            .and_then(|it| it.injected_hash.as_deref());
        let pod = observed.probe_pod();
        let injection = previous.injection.as_ref();
        let probe_result_since = injection.and_then(|it| it.since.as_ref()).map(|it| it.0);
        let bound_since = previous.bound_since.as_ref().map(|it| it.0);
        Self {
            uid: observed.actor.metadata.uid.clone(),
            actor_hash: actor_hash(hash).map(str::to_owned),
            pod: pod.and_then(|pod| serde_json::from_value(pod.clone()).ok()),
            replaced: replaced(observed),
            probe_result: observed.probe_result(),
            webhook: observed.webhook,
            probe_result_since,
            status_since: bound_since.max(probe_result_since),
        }
    }

    /// Whether the webhook may not have read the latest status yet.
    fn webhook_may_lag(&self, now: Timestamp) -> bool {
        let Some(last) = self.status_since else {
            return false;
        };
        // The time may come from the API server's clock, which may be ahead of ours.
        let age = now.duration_since(last);
        (-MAX_CLOCK_SKEW..WEBHOOK_LAG).contains(&age)
    }

    pub fn after_failure(&self, failure: &ProbeFailure, now: Timestamp) -> FailedProbe {
        let may_lag = self.webhook_may_lag(now);
        match failure {
            // The first rejected pod may lack the limits that the status has only just requested.
            ProbeFailure::Rejected(why) => {
                let is_first = !matches!(self.probe_result, Some(ProbeResult::Rejected(_)));
                FailedProbe {
                    outcome: ProbeOutcome::Rejected(why.clone()),
                    may_pass_soon: may_lag && is_first,
                }
            }
            ProbeFailure::NotCalled(why) | ProbeFailure::NotInjected(why) => FailedProbe {
                outcome: ProbeOutcome::NotInjected(why.clone()),
                may_pass_soon: may_lag,
            },
        }
    }

    /// Decides after the dry run that was due; `next_probe` is the schedule of the next one.
    pub fn before_step(
        &self,
        decision: &RolloutDecision,
        probe: &ProbeState,
        next_probe: &NextProbe,
        now: Timestamp,
    ) -> StepCheck {
        let blocked = |outcome| StepCheck::Decided(StepReadiness::blocked(outcome));
        if self.is_rejected(&probe.outcome) {
            // Keep the recorded rollout: a probe result that flaps must not restart pods each time (ROLL-5).
            return blocked(RolloutOutcome::NotChecked);
        }
        let RolloutDecision::Act(action) = decision else {
            return StepCheck::Decided(StepReadiness::Ready);
        };
        if !self.webhook {
            return blocked(no_webhook());
        }
        match (&probe.outcome, &self.probe_result) {
            (ProbeOutcome::Admitted, _) if *action == RolloutAction::VerifyInjection => {
                return blocked(RolloutOutcome::NoPodsYet);
            }
            (ProbeOutcome::NotInjected(_), _)
            | (ProbeOutcome::NotRun, Some(ProbeResult::Unverified)) => {
                return blocked(self.failure_outcome(probe, next_probe, now));
            }
            // Pods are injected once the webhook has read the status of this reconcile.
            (ProbeOutcome::Admitted, Some(ProbeResult::Unverified | ProbeResult::Rejected(_))) => {
                return blocked(rollout_begins(STATUS_PROPAGATION));
            }
            _ => {}
        }
        if let Some(wait) = self.propagation_left(now) {
            return blocked(rollout_begins(wait));
        }
        match (next_probe.wait, &next_probe.failed) {
            (Some(wait), Some(_)) => {
                let probe = ProbeState {
                    next_probe_in: Some(wait),
                    outcome: probe.outcome.clone(),
                };
                StepCheck::Decided(StepReadiness::Blocked {
                    outcome: self.failure_outcome(&probe, next_probe, now),
                    next_probe_in: Some(wait),
                })
            }
            _ => StepCheck::NeedsProbe,
        }
    }

    /// Decides after the dry run for the step itself.
    pub fn after_step_probe(
        &self,
        probe: &ProbeState,
        next_probe: &NextProbe,
        now: Timestamp,
    ) -> StepReadiness {
        match &probe.outcome {
            ProbeOutcome::NotRun | ProbeOutcome::Admitted => StepReadiness::Ready,
            ProbeOutcome::NotInjected(_) => {
                StepReadiness::blocked(self.failure_outcome(probe, next_probe, now))
            }
            ProbeOutcome::Rejected(_) => StepReadiness::blocked(RolloutOutcome::NotChecked),
        }
    }

    fn is_rejected(&self, probed: &ProbeOutcome) -> bool {
        match probed {
            ProbeOutcome::Rejected(_) => true,
            ProbeOutcome::Admitted => false,
            ProbeOutcome::NotRun | ProbeOutcome::NotInjected(_) => {
                matches!(self.probe_result, Some(ProbeResult::Rejected(_)))
            }
        }
    }

    /// How long some replica of the webhook may still lack the probe result from the status.
    fn propagation_left(&self, now: Timestamp) -> Option<Duration> {
        let age = Duration::try_from(now.duration_since(self.probe_result_since?)).ok()?;
        // Timestamps in the status have a resolution of one second.
        let left = (STATUS_PROPAGATION + Duration::from_secs(1)).checked_sub(age)?;
        (!left.is_zero()).then_some(left)
    }

    /// The outcome of a rollout that waits, from the last failed dry run.
    fn failure_outcome(
        &self,
        probe: &ProbeState,
        next_probe: &NextProbe,
        now: Timestamp,
    ) -> RolloutOutcome {
        let why = match (&probe.outcome, &next_probe.failed) {
            (ProbeOutcome::NotInjected(why), _)
            | (_, Some(ProbeFailure::NotCalled(why) | ProbeFailure::NotInjected(why))) => {
                why.clone()
            }
            _ => "no dry run has shown yet that new pods get the sidecar".to_owned(),
        };
        let suffix = match next_probe.failed {
            Some(ProbeFailure::NotCalled(_)) => {
                "; waiting for the webhook, retrying every few seconds"
            }
            _ => "",
        };
        let text = format!(
            "no pod is replaced, because a new one would not get the sidecar: {why}{suffix}"
        );
        let reason = if self.webhook_may_lag(now) {
            Reason::PodsNotInjected
        } else {
            Reason::ProbeFailed
        };
        let requeue = probe
            .next_probe_in
            .map_or(Requeue::SlowBackoff, Requeue::After);
        RolloutOutcome::waiting(reason, text, requeue)
    }
}

fn rollout_begins(wait: Duration) -> RolloutOutcome {
    let text =
        "the API server admits pods with the sidecar; pods without it will be replaced in a moment";
    RolloutOutcome::waiting(Reason::RolloutInProgress, text, Requeue::After(wait))
}

fn no_webhook() -> RolloutOutcome {
    let text = "the operator is installed without its webhook, so no pod gets the sidecar; enable it \
     (webhook.enabled)";
    RolloutOutcome::waiting(Reason::WebhookNotReady, text, Requeue::AwaitChange)
}

/// What a new pod of the target replaces: one of its pods, unless some are missing.
fn replaced(observed: &Observed) -> Replaced {
    let desired = observed.resolved().and_then(|it| it.replicas);
    let pods = observed.binding.as_ref().and_then(ObservedBinding::pods);
    let counts = observed.rollout().map(|it| &it.pod_counts);
    let from_rollout = counts.map(|it| it.pods.matched);
    let active = from_rollout.or_else(|| pods.map(TargetPods::active_count));
    let current = counts.map_or(0, |it| it.current);
    desired
        .zip(active)
        .map_or(Replaced::Pod, |(desired, active)| {
            replaced_by_counts(desired, active, current)
        })
}

/// The same for a target with `active` of `desired` pods, of which `current` have the sidecar that a new one gets.
fn replaced_by_counts(desired: i32, active: i32, current: i32) -> Replaced {
    if active < desired {
        Replaced::Nothing
    } else if active == 0 {
        Replaced::NoPod
    } else if current == active {
        Replaced::SamePod
    } else {
        Replaced::Pod
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_shared::inject::bound::ProbeResult;
    use asya_shared::probe::Replaced;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};

    use super::{ProbeInputs, ProbeParams, ProbeStep, decide, replaced_by_counts};
    use crate::binding::dry_run::ProbeFailure;
    use crate::reconcile::model::outcome::ProbeOutcome;

    /// SAFE-7
    #[test]
    fn new_pod_replaces_a_pod_of_a_complete_target() {
        for (desired, active, current, expected) in [
            (2, 1, 1, Replaced::Nothing),
            (2, 2, 0, Replaced::Pod),
            (2, 2, 1, Replaced::Pod),
            (2, 2, 2, Replaced::SamePod),
            (2, 3, 3, Replaced::SamePod),
            (0, 0, 0, Replaced::NoPod),
        ] {
            let actual = replaced_by_counts(desired, active, current);
            assert_eq!(actual, expected, "{desired} {active} {current}");
        }
    }

    /// SAFE-4
    #[test]
    fn dry_run_is_made_only_when_needed_and_due() {
        let later = Duration::from_secs(30);
        for (needed, requested, wait, expected) in [
            (false, false, None, ProbeStep::Skip),
            (false, false, Some(later), ProbeStep::Skip),
            (true, false, None, ProbeStep::Run),
            (false, true, None, ProbeStep::Run),
            (true, false, Some(later), ProbeStep::Wait(later)),
            (true, true, Some(later), ProbeStep::Wait(later)),
        ] {
            let inputs = ProbeInputs {
                needed,
                requested,
                wait,
            };
            assert_eq!(decide(inputs), expected, "{inputs:?}");
        }
    }

    /// SAFE-4
    #[test]
    fn failed_dry_run_may_pass_soon_while_the_webhook_lags_unless_the_pod_is_rejected_again() {
        let now = Timestamp::from_second(1_000).unwrap();
        let rejected = |text: &str| ProbeFailure::Rejected(text.to_owned());
        let earlier = || Some(ProbeResult::Rejected("quota".to_owned()));
        for (failure, result, age, expected) in [
            (ProbeFailure::NotInjected("no".to_owned()), None, 1, true),
            (
                ProbeFailure::NotInjected("no".to_owned()),
                earlier(),
                1,
                true,
            ),
            (ProbeFailure::NotInjected("no".to_owned()), None, 20, false),
            (ProbeFailure::NotInjected("no".to_owned()), None, -300, true),
            (
                ProbeFailure::NotInjected("no".to_owned()),
                None,
                -301,
                false,
            ),
            (ProbeFailure::NotInjected("no".to_owned()), None, 60, false),
            (ProbeFailure::NotCalled("no".to_owned()), None, 1, true),
            (rejected("quota"), None, 1, true),
            (rejected("quota"), None, 60, false),
            (rejected("quota"), earlier(), 1, false),
        ] {
            let params = ProbeParams {
                probe_result: result,
                status_since: Some(now - SignedDuration::from_secs(age)),
                ..ProbeParams::default()
            };
            let failed = params.after_failure(&failure, now);
            assert_eq!(failed.may_pass_soon, expected, "{failure:?} {age}");
            let is_rejected = matches!(failed.outcome, ProbeOutcome::Rejected(_));
            assert_eq!(is_rejected, matches!(failure, ProbeFailure::Rejected(_)));
        }
    }
}
