//! What the execution of a rollout decision needs.

use std::time::Duration;

use asya_shared::names::manager;
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use super::facts::{Act, Rolling};
use crate::fault::Reason;
use crate::reconcile::contention::Specs;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::TEMPLATE;
use crate::telemetry::events::EventReason;

/// A target without progress for this long no longer blocks others (SAFE-15).
const LONGEST_HOLD: Duration = Duration::from_hours(1);

/// What the execution of a rollout decision needs.
#[derive(Debug)]
pub struct RollInputs {
    /// How the target's pods are replaced.
    pub roll: Roll,
    /// The owner that is told by an annotation that the queue scales the target.
    pub claim_owner: Option<ObjectRef>,
    /// The current specs.
    pub specs: Specs,
    pub slot: Option<SlotChange>,
    /// The Event to publish.
    pub event: Option<(EventReason, String)>,
}

/// What a rollout decision means for the actor's rollout slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// Give it up, with what was counted for it.
    Forget,
    Release,
    Hold(Timestamp),
}

impl RollInputs {
    pub fn new(observed: &Observed, rolling: &Rolling, now: Timestamp) -> Self {
        let target = observed.resolved().map(|it| &it.target);
        let claim = target.and_then(|it| it.scale.claim());
        Self {
            roll: target.map_or(Roll::Evict, |it| it.roll.clone()),
            claim_owner: claim.map(|it| it.owner.clone()),
            specs: Specs {
                generation: observed.actor.generation,
                target: observed
                    .rollout()
                    .map(|seen| seen.target.clone())
                    .unwrap_or_default(),
            },
            slot: slot_change(observed, rolling, now),
            event: event(observed, rolling),
        }
    }
}

/// A rollout that we did not start, or that takes too long, must not block others (SAFE-15).
fn slot_change(observed: &Observed, rolling: &Rolling, now: Timestamp) -> Option<SlotChange> {
    Some(match rolling {
        Rolling::Rest | Rolling::Halt(_) | Rolling::Lost(_) | Rolling::Leave => SlotChange::Forget,
        Rolling::Wait(Reason::RolloutInProgress, ..) => {
            held_until(observed, now).map_or(SlotChange::Release, SlotChange::Hold)
        }
        Rolling::Wait(..) | Rolling::Stall(_) => SlotChange::Release,
        Rolling::Act(Act::Prove) => return None,
        Rolling::Act(Act::Annotate(_) | Act::Evict(_)) => {
            let until = now.checked_add(hold_time(observed));
            SlotChange::Hold(until.unwrap_or(Timestamp::MAX))
        }
    })
}

/// Until when our last write holds a slot. Derived from the status, so that it survives a restart.
fn held_until(observed: &Observed, now: Timestamp) -> Option<Timestamp> {
    let since = observed.previous.rollout.as_ref()?.since.as_ref()?;
    let until = since.0.checked_add(hold_time(observed)).ok()?;
    (until > now).then_some(until)
}

fn hold_time(observed: &Observed) -> Duration {
    let limit = observed.progress_limit();
    limit.map_or(LONGEST_HOLD, |limit| limit.min(LONGEST_HOLD))
}

/// A halt is announced once, and the replacement of GPU pods before the first one (ROLL-7).
fn event(observed: &Observed, rolling: &Rolling) -> Option<(EventReason, String)> {
    let before = observed.previous.rollout.as_ref();
    match rolling {
        Rolling::Halt(text) if before.is_none_or(|before| !before.halted) => {
            Some((EventReason::RolloutHalted, text.clone()))
        }
        Rolling::Stall(text) if before.is_none_or(|before| !before.stalled) => {
            Some((EventReason::RolloutHalted, text.clone()))
        }
        Rolling::Act(Act::Annotate(_) | Act::Evict(_)) if before.is_none() => {
            let (seen, resolved) = (observed.rollout()?, observed.resolved()?);
            let text = format!(
                "{} pods of {} that use GPUs are replaced to get the sidecar; spec.binding.rollout: OnRestart leaves them until their next restart",
                seen.counted.lacking.len(),
                resolved.target.workload
            );
            let has_gpus = seen.live.iter().any(|it| it.gpus);
            has_gpus.then_some((EventReason::RollsGpuPods, text))
        }
        _ => None,
    }
}

/// The objects that carry our rollout annotation, with the path of their annotations and our field manager.
pub fn annotated(roll: &Roll) -> Vec<(&ObjectRef, &[&'static str], &'static str)> {
    match roll {
        Roll::AnnotateTemplate(workloads) => {
            let all = workloads.iter();
            all.map(|it| (it, &TEMPLATE[..], manager::ROLL)).collect()
        }
        Roll::Annotate(object, path) => vec![(object, &path[..], manager::PARENT)],
        Roll::Evict => Vec::new(),
    }
}

/// Our field manager for the annotation on an object that no longer belongs to the target: of the annotated objects,
/// only workloads of group apps carry it in their pod template, where it is applied separately.
pub fn manager_of(object: &ObjectRef) -> &'static str {
    if object.group_kind().group == "apps" {
        manager::ROLL
    } else {
        manager::PARENT
    }
}
