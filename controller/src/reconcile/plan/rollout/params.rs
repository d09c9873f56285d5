//! Parameters for the execution of a rollout decision.

use std::time::Duration;

use asya_shared::names::manager;
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::jiff::Timestamp;

use super::inputs::{RolloutAction, RolloutDecision};
use crate::binding::rollout_slots::MAX_SLOT_TIME;
use crate::clock_skew::time_left;
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::TEMPLATE_ANNOTATIONS;
use crate::telemetry::events::{EventReason, NewEvent};

/// A rollout decision with the parameters for its execution.
#[derive(Debug)]
pub struct PlannedRollout {
    pub decision: RolloutDecision,
    pub params: RolloutParams,
}

/// Parameters for the execution of a rollout decision.
#[derive(Debug)]
pub struct RolloutParams {
    /// How the target's pods are replaced.
    pub roll: RolloutMethod,
    /// The owner that carries the autoscaler handoff annotation.
    pub handoff_object: Option<ObjectRef>,
    /// The current revision of the specs.
    pub revision: SpecRevision,
    /// Availability of the target's pods, on which an eviction relies.
    pub availability: Availability,
    pub slot: Option<SlotChange>,
    pub event: Option<NewEvent>,
}

/// The change to the actor's rollout slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// Release it: no rollout is due, or it has ended. The next one starts with new counters.
    ReleaseAndReset,
    /// Release it while the rollout waits.
    Release,
    Wait,
    /// Get or keep it until this time.
    Acquire(Timestamp),
}

impl RolloutParams {
    /// Parameters for this decision; `idle_slot` is the change to the slot if no rollout is due.
    pub fn new(
        observed: &Observed,
        decision: &RolloutDecision,
        idle_slot: Option<SlotChange>,
        now: Timestamp,
    ) -> Self {
        let target = observed.resolved().map(|it| &it.target);
        let handoff = target.and_then(|it| it.scale.handoff());
        Self {
            roll: target.map_or(RolloutMethod::Evict, |it| it.roll.clone()),
            handoff_object: handoff.map(|it| it.owner.clone()),
            revision: SpecRevision {
                generation: observed.actor.generation,
                spec_hash: observed
                    .rollout()
                    .map(|rollout| rollout.workload_specs_hash.clone())
                    .unwrap_or_default(),
            },
            availability: observed
                .rollout()
                .map(|rollout| rollout.availability.clone())
                .unwrap_or_default(),
            slot: match decision {
                RolloutDecision::NotNeeded => idle_slot,
                _ => slot_change(observed, decision, now),
            },
            event: event(observed, decision),
        }
    }
}

/// A rollout that we did not start, or that takes too long, must not block others (SAFE-15).
fn slot_change(
    observed: &Observed,
    decision: &RolloutDecision,
    now: Timestamp,
) -> Option<SlotChange> {
    Some(match decision {
        RolloutDecision::NotNeeded
        | RolloutDecision::Halted(_)
        | RolloutDecision::RecordConflict(_)
        | RolloutDecision::Yield => SlotChange::ReleaseAndReset,
        RolloutDecision::InProgress => {
            let rollout = observed.previous.rollout.as_ref();
            let since = rollout.and_then(|it| it.since.as_ref());
            let until = since.and_then(|since| slot_expiry(observed, since.0, now));
            until.map_or(SlotChange::Release, SlotChange::Acquire)
        }
        RolloutDecision::Wait { .. } | RolloutDecision::Stalled(_) => SlotChange::Release,
        RolloutDecision::AwaitSlot => SlotChange::Wait,
        RolloutDecision::Act(RolloutAction::VerifyInjection) => return None,
        RolloutDecision::Act(RolloutAction::Annotate(_) | RolloutAction::Evict(_)) => {
            new_slot(observed, now)
        }
    })
}

/// The slot of a write that is made now.
pub(in crate::reconcile::plan) fn new_slot(observed: &Observed, now: Timestamp) -> SlotChange {
    let until = now.checked_add(slot_time(observed.progress_limit()));
    SlotChange::Acquire(until.unwrap_or(Timestamp::MAX))
}

/// When the slot of the last write expires, which status says was made at `written`. This lets a slot survive a
/// restart. `None` if it has expired.
pub(in crate::reconcile::plan) fn slot_expiry(
    observed: &Observed,
    written: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    let longest = slot_time(observed.progress_limit());
    let until = written.checked_add(longest).ok()?;
    now.checked_add(time_left(until, longest, now)?).ok()
}

/// How long a slot may be held, given `spec.timeout.progress`.
pub(in crate::reconcile::plan) fn slot_time(limit: Option<Duration>) -> Duration {
    limit.map_or(MAX_SLOT_TIME, |limit| limit.min(MAX_SLOT_TIME))
}

/// Reports a halt or a stall once (both have the public reason `RolloutHalted`), and the replacement of GPU pods before
/// the first one (ROLL-7).
fn event(observed: &Observed, decision: &RolloutDecision) -> Option<NewEvent> {
    let previous = observed.previous.rollout.as_ref();
    match decision {
        RolloutDecision::Halted(text) if previous.is_none_or(|previous| !previous.halted) => {
            Some(NewEvent::new(EventReason::RolloutHalted, text))
        }
        RolloutDecision::Stalled(text) if previous.is_none_or(|previous| !previous.stalled) => {
            Some(NewEvent::new(EventReason::RolloutHalted, text))
        }
        RolloutDecision::Act(RolloutAction::Annotate(_) | RolloutAction::Evict(_))
            if previous.is_none() =>
        {
            let rollout = observed.rollout()?;
            let resolved = observed.resolved()?;
            let text = format!(
                "{} pods of {} that use GPUs are being replaced to add the sidecar; spec.binding.rollout: OnRestart \
                 leaves them until their next restart",
                rollout.pod_counts.outdated.len(),
                resolved.target.workload
            );
            let has_gpus = rollout.objects.iter().any(|it| it.requests_gpus);
            has_gpus.then(|| NewEvent::new(EventReason::RollsGpuPods, text))
        }
        _ => None,
    }
}

/// An object that carries our rollout annotation.
#[derive(Clone, Copy, Debug)]
pub struct AnnotatedObject<'a> {
    pub object: &'a ObjectRef,
    /// The path of its annotations.
    pub path: &'a [&'static str],
    /// Our field manager of the annotation.
    pub manager: &'static str,
}

/// The objects that carry our rollout annotation.
pub fn annotated_objects(roll: &RolloutMethod) -> Vec<AnnotatedObject<'_>> {
    match roll {
        RolloutMethod::AnnotateTemplate(workloads) => {
            let all = workloads.iter();
            all.map(|object| AnnotatedObject {
                object,
                path: &TEMPLATE_ANNOTATIONS,
                manager: manager::ROLL,
            })
            .collect()
        }
        RolloutMethod::Annotate(object, path) => vec![AnnotatedObject {
            object,
            path,
            manager: manager::OWNER,
        }],
        RolloutMethod::Evict => Vec::new(),
    }
}

/// Our field manager for the annotation on an object that no longer belongs to the target. Only workloads of group apps
/// carry it in their pod template, where it has its own manager.
pub fn manager_of(object: &ObjectRef) -> &'static str {
    if object.group_kind().group == "apps" {
        manager::ROLL
    } else {
        manager::OWNER
    }
}
