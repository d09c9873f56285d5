//! Scales a target up from zero after scaling was switched off, but not before everything that would replace its first
//! pod (SO-6, SAFE-24).

use asya_shared::inject::bound::ProbeResult;
use asya_shared::resolve::{AutoscalerHandoff, ObjectRef};
use k8s_openapi::api::autoscaling::v1::Scale;

use super::autoscaler_handoff::{handoff_of, is_due};
use super::probe::{PlannedProbe, ProbeStep};
use super::rollout::inputs::RolloutDecision;
use super::steps::{ScaleFromZero, ScalingStep};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;

/// When to scale up a target that no autoscaler scales any more.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleFromZeroStep {
    /// Scale it up, if it has no pods.
    Now(ScaleFromZero),
    /// Not yet: its pods would be replaced at once.
    Later,
}

/// Inputs to [`decide`].
#[derive(Clone, Debug)]
pub struct ScaleFromZeroInputs<'a> {
    /// The handoff annotation of the target's owner, if it requires one.
    pub handoff: Option<&'a AutoscalerHandoff>,
    /// Rollout of pods that started before the binding.
    pub rollout: Option<&'a RolloutDecision>,
    /// Whether new pods get the sidecar; `None` where the webhook does not inject it.
    pub probe_result: Option<&'a ProbeResult>,
    /// This reconcile makes a dry run, which updates the probe result.
    pub runs_probe: bool,
}

/// Scales the target up once KEDA no longer scales it, because no HPA scales a workload up from zero. Only a target
/// that the queue has scaled, according to status (SO-6).
pub(super) fn plan_scale_from_zero(
    observed: &Observed,
    scaling: Option<&ScalingStep>,
    rollout: Option<&RolloutDecision>,
    probe: &PlannedProbe,
) -> Option<ScaleFromZeroStep> {
    if !has_ended(observed, scaling?) {
        return None;
    }
    let scale_up = plan_scale_up(observed, observed.resolved()?.target.scaled())?;
    let inputs = ScaleFromZeroInputs {
        handoff: handoff_of(observed),
        rollout,
        probe_result: probe.params.probe_result.as_ref(),
        runs_probe: probe.step == ProbeStep::Run,
    };
    Some(decide(&inputs, scale_up))
}

/// Whether KEDA no longer scales the target: scaling is off or not possible any more, or another manager has taken the
/// handoff back (CONF-3).
fn has_ended(observed: &Observed, scaling: &ScalingStep) -> bool {
    match scaling {
        ScalingStep::Disabled(teardown) | ScalingStep::Blocked(teardown, _) => teardown.completed,
        ScalingStep::Enabled(plan) => {
            plan.fault.is_some()
                && matches!(observed.scaling.scaled_object, Child::NotFound)
                && handoff_of(observed).is_some_and(|handoff| !handoff.is_set)
        }
    }
}

pub fn decide(inputs: &ScaleFromZeroInputs<'_>, scale_up: ScaleFromZero) -> ScaleFromZeroStep {
    let handoff_changes = inputs.handoff.is_some_and(|handoff| {
        if handoff.is_set {
            // The annotation is removed in this reconcile, or once another rollout has ended.
            is_due(inputs.rollout) || inputs.rollout.is_some_and(RolloutDecision::is_waiting)
        } else {
            !handoff.is_propagated
        }
    });
    let injection_changes =
        inputs.runs_probe && inputs.probe_result == Some(&ProbeResult::Unverified);
    if handoff_changes || injection_changes {
        ScaleFromZeroStep::Later
    } else {
        ScaleFromZeroStep::Now(scale_up)
    }
}

pub fn is_at_zero(scale: &Scale) -> bool {
    let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas);
    replicas.unwrap_or(0) <= 0
}

/// Plans to scale `object` up if, according to status, the actor's queue scaled it.
pub fn plan_scale_up(observed: &Observed, object: &ObjectRef) -> Option<ScaleFromZero> {
    observed.previous.scaled_object_ref.as_ref()?;
    let spec = observed.desired.as_ref().ok().map(|desired| &desired.spec);
    let scaling = spec.and_then(|spec| spec.scaling.as_ref());
    Some(ScaleFromZero {
        object: object.clone(),
        replicas: scaling.map_or(1, |scaling| scaling.effective_min_replicas().max(1)),
    })
}

#[cfg(test)]
mod tests {
    use asya_shared::inject::bound::ProbeResult;
    use asya_shared::resolve::{AutoscalerHandoff, ObjectRef};

    use super::{ScaleFromZeroInputs, ScaleFromZeroStep, decide};
    use crate::reconcile::plan::rollout::inputs::RolloutDecision;
    use crate::reconcile::plan::steps::ScaleFromZero;

    /// A target at zero, with no rollout and with new pods known to get the sidecar.
    struct Row {
        case: &'static str,
        handoff: Option<AutoscalerHandoff>,
        rollout: RolloutDecision,
        probe_result: ProbeResult,
        runs_probe: bool,
        scales_up: bool,
    }

    impl Row {
        fn new(case: &'static str, scales_up: bool) -> Self {
            Self {
                case,
                handoff: None,
                rollout: RolloutDecision::NotNeeded,
                probe_result: ProbeResult::Verified,
                runs_probe: false,
                scales_up,
            }
        }
    }

    fn handoff(is_set: bool, is_propagated: bool) -> AutoscalerHandoff {
        AutoscalerHandoff {
            owner: ObjectRef::default(),
            is_set,
            is_propagated,
        }
    }

    fn rows() -> [Row; 9] {
        [
            Row::new("no owner has the annotation", true),
            Row {
                handoff: Some(handoff(true, true)),
                ..Row::new("the annotation is removed first", false)
            },
            Row {
                handoff: Some(handoff(true, true)),
                rollout: RolloutDecision::wait("text"),
                ..Row::new("the annotation will be removed", false)
            },
            Row {
                handoff: Some(handoff(true, true)),
                rollout: RolloutDecision::Halted(String::new()),
                ..Row::new("the rollout is halted", true)
            },
            Row {
                handoff: Some(handoff(false, false)),
                ..Row::new("the owner has not reacted yet", false)
            },
            Row {
                handoff: Some(handoff(false, true)),
                ..Row::new("the owner has reacted", true)
            },
            Row {
                probe_result: ProbeResult::Unverified,
                runs_probe: true,
                ..Row::new("a dry run comes first", false)
            },
            Row {
                probe_result: ProbeResult::Unverified,
                ..Row::new("the webhook is down", true)
            },
            Row {
                probe_result: ProbeResult::Rejected("quota".to_owned()),
                runs_probe: true,
                ..Row::new("pods do not get the sidecar", true)
            },
        ]
    }

    /// SAFE-24, SO-6
    #[test]
    fn target_at_zero_is_scaled_up_after_everything_that_would_replace_its_first_pod() {
        let scale_up = ScaleFromZero {
            object: ObjectRef::default(),
            replicas: 1,
        };
        for row in rows() {
            let inputs = ScaleFromZeroInputs {
                handoff: row.handoff.as_ref(),
                rollout: Some(&row.rollout),
                probe_result: Some(&row.probe_result),
                runs_probe: row.runs_probe,
            };
            let expected = if row.scales_up {
                ScaleFromZeroStep::Now(scale_up.clone())
            } else {
                ScaleFromZeroStep::Later
            };
            assert_eq!(decide(&inputs, scale_up.clone()), expected, "{}", row.case);
        }
    }
}
