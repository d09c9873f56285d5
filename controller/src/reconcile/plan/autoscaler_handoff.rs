//! Autoscaler handoff: an annotation on the owner of a target disables the owner's autoscaler, so that the queue scales
//! the target (SO-5). Setting it restarts the pods.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::names::annotation::AUTOSCALER_CLASS;
use asya_shared::resolve::AutoscalerHandoff;
use k8s_openapi::jiff::Timestamp;

use super::controller_rollout::RolloutBlocker;
use super::rollout::inputs::{RECHECK_INTERVAL, RolloutAction, RolloutDecision};
use super::rollout::params::{SlotChange, new_slot};
use super::scaling::ScalingTeardown;
use super::steps::{ScalingRestriction, ScalingStep};
use crate::cluster::rollouts::FALLBACK_REQUEUE;
use crate::fault::{Fault, Reason};
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{ContestedPart, FieldDecision, FieldView};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{AWAITS_SLOT, HandoffChange, RolloutOutcome, ScalingWait};
use crate::reconcile::model::rollout::ObservedRollout;
use crate::record::HpaRecord;

#[derive(Clone, Debug, PartialEq)]
pub enum HandoffStep {
    /// It should be set, as far as contention allows.
    Set(FieldDecision),
    Remove,
    /// Setting or removing it would make the owner replace the pods, which has to wait.
    Blocked(HandoffBlocker),
}

/// What keeps the annotation from being written outside a rollout.
#[derive(Clone, Debug, PartialEq)]
pub enum HandoffBlocker {
    /// No rollout slot is free (SAFE-15).
    NoSlot,
    /// The target's pods must not be replaced now, for this reason.
    Rollout(String),
}

impl HandoffBlocker {
    pub fn text(&self) -> &str {
        match self {
            Self::NoSlot => AWAITS_SLOT,
            Self::Rollout(text) => text,
        }
    }

    /// How long to wait before checking again: no watch reports that the blocker is gone.
    pub fn recheck_after(&self) -> Duration {
        match self {
            Self::NoSlot => FALLBACK_REQUEUE,
            Self::Rollout(_) => RECHECK_INTERVAL,
        }
    }
}

impl HandoffStep {
    /// What to write; `None` leaves the annotation as it is.
    pub fn change(&self) -> Option<HandoffChange> {
        match self {
            Self::Set(FieldDecision::Write) => Some(HandoffChange::Set),
            Self::Set(_) | Self::Blocked(_) => None,
            Self::Remove => Some(HandoffChange::Remove),
        }
    }
}

/// How the annotation is written in this reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffWrite {
    /// By the rollout.
    WithRollout,
    /// By itself: no rollout is due.
    Separately,
    /// Not in this reconcile.
    Skipped,
}

/// Decides from the outcome of the rollout.
pub fn after_rollout(rolled: &RolloutOutcome) -> HandoffWrite {
    match rolled {
        RolloutOutcome::Requested(_) => HandoffWrite::WithRollout,
        RolloutOutcome::NotNeeded => HandoffWrite::Separately,
        _ => HandoffWrite::Skipped,
    }
}

/// The handoff that the owner of the target requires.
pub(super) fn handoff_of(observed: &Observed) -> Option<&AutoscalerHandoff> {
    observed.resolved()?.target.scale.handoff()
}

/// Plans the annotation.
pub(super) fn plan_handoff(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<&ScalingStep>,
    rollout: Option<&RolloutDecision>,
    now: Timestamp,
) -> Option<HandoffStep> {
    let step = decide(observed, history, scaling, rollout, now)?;
    let by_itself = step.change().is_some() && rollout == Some(&RolloutDecision::NotNeeded);
    let Some(blocker) = observed.rollout().filter(|_| by_itself).and_then(blocker) else {
        return Some(step);
    };
    Some(HandoffStep::Blocked(blocker))
}

/// The reason not to make the owner replace the target's pods now, if no rollout replaces them anyway (ROLL-2, SAFE-13
/// to SAFE-15).
fn blocker(rollout: &ObservedRollout) -> Option<HandoffBlocker> {
    let ObservedRollout {
        availability,
        objects,
        ..
    } = rollout;
    if availability.active == 0 {
        return None;
    }
    let budget = rollout.blocking_pdb.as_deref();
    if is_replacing_pods(rollout) {
        let text = "the target's pods are being replaced; waiting until that has finished";
        return Some(HandoffBlocker::Rollout(text.to_owned()));
    }
    let blocker = RolloutBlocker::stops_all_pods(objects)
        .or_else(|| RolloutBlocker::loses_ready_pod(objects))
        .or_else(|| RolloutBlocker::exceeds_budget(objects, budget));
    match blocker {
        Some(blocker) => Some(HandoffBlocker::Rollout(blocker.to_string())),
        None => (!rollout.has_slot).then_some(HandoffBlocker::NoSlot),
    }
}

fn is_replacing_pods(rollout: &ObservedRollout) -> bool {
    rollout.availability.has_terminating || rollout.objects.iter().any(|it| it.rolling)
}

/// The change to the actor's slot if no rollout is due: the annotation needs one until the owner has replaced the pods
/// (SAFE-15).
pub(super) fn slot_change(
    observed: &Observed,
    step: Option<&HandoffStep>,
    now: Timestamp,
) -> Option<SlotChange> {
    let rollout = observed.rollout();
    match step {
        Some(HandoffStep::Blocked(HandoffBlocker::NoSlot)) => Some(SlotChange::Wait),
        Some(step) if step.change().is_some() => {
            let has_pods = rollout.is_some_and(|it| it.availability.active > 0);
            has_pods.then(|| new_slot(observed, now))
        }
        Some(HandoffStep::Set(FieldDecision::Keep)) => {
            let is_replacing = rollout.is_some_and(is_replacing_pods);
            let handoff = handoff_of(observed);
            let is_underway = handoff.is_some_and(|it| !it.is_propagated || is_replacing);
            (!is_underway).then_some(SlotChange::ReleaseAndReset)
        }
        _ => Some(SlotChange::ReleaseAndReset),
    }
}

fn decide(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<&ScalingStep>,
    rollout: Option<&RolloutDecision>,
    now: Timestamp,
) -> Option<HandoffStep> {
    let resolved = observed.resolved()?;
    let scaling = scaling?;
    let Some(handoff) = resolved.target.scale.handoff() else {
        return Some(HandoffStep::Set(FieldDecision::Keep));
    };
    let history = history?;
    match (scaling, handoff.is_set) {
        (
            ScalingStep::Disabled(ScalingTeardown {
                completed: true, ..
            }),
            true,
        ) => {
            return is_due(rollout).then_some(HandoffStep::Remove);
        }
        (ScalingStep::Disabled(_), _) => return Some(HandoffStep::Set(FieldDecision::Keep)),
        (ScalingStep::Enabled(plan), false) if plan.fault.is_some() => return None,
        (ScalingStep::Enabled(_) | ScalingStep::Blocked(..), _) => {}
    }
    let previous = &observed.previous;
    let view = FieldView {
        needed: true,
        // Our `ScaledObject` is created only after the handoff. Status covers a revert before that.
        was_set: matches!(observed.scaling.scaled_object, Child::Ours(_))
            || previous.handoff_uid.as_deref() == Some(history.uid),
        has_desired_value: handoff.is_set,
    };
    let decision = history.decide(ContestedPart::Autoscaler, view, now);
    // If no rollout is due, keep the owner's autoscaler until ours can replace it at once (SAFE-20).
    let is_waiting = scaling.waits_for().is_some() && rollout == Some(&RolloutDecision::NotNeeded);
    let is_due = decision != FieldDecision::Write || (is_due(rollout) && !is_waiting);
    is_due.then_some(HandoffStep::Set(decision))
}

/// How the annotation restricts scaling: the queue does not scale the target while the annotation has to wait, or was
/// reverted and must not be written for now.
pub(super) fn scaling_restriction(observed: &Observed, step: &HandoffStep) -> ScalingRestriction {
    match step {
        HandoffStep::Set(decision) if decision.is_contested() => ScalingRestriction {
            fault: handoff_of(observed).map(reverted_fault),
            ..ScalingRestriction::default()
        },
        HandoffStep::Blocked(blocker) => ScalingRestriction {
            waits_for: Some(ScalingWait::Handoff(blocker.text().to_owned())),
            ..ScalingRestriction::default()
        },
        HandoffStep::Set(_) | HandoffStep::Remove => ScalingRestriction::default(),
    }
}

/// Whether to write now: with a rollout, or if none is needed, so that pods restart only once (ROLL-3).
pub(super) fn is_due(rollout: Option<&RolloutDecision>) -> bool {
    matches!(
        rollout,
        Some(RolloutDecision::NotNeeded | RolloutDecision::Act(RolloutAction::Annotate(_)))
    )
}

/// The part of the handoff's state that scaling depends on.
pub(super) struct HandoffState {
    /// HPAs other than the owner's own.
    pub other_hpas: Vec<Arc<HpaRecord>>,
    /// The owner's autoscaler is still active.
    pub is_pending: bool,
    /// The owner scales the target again.
    pub fault: Option<Fault>,
}

/// Determines who scales a target whose owner disables its own autoscaler on request.
pub(super) fn evaluate(observed: &Observed, handoff: Option<&AutoscalerHandoff>) -> HandoffState {
    let keda = &observed.scaling;
    let owner = handoff.and_then(|it| it.owner.uid.as_deref());
    let is_owned = |hpa: &&Arc<HpaRecord>| {
        let controller = hpa.metadata.controller.as_ref();
        owner.is_some() && controller.map(|it| &*it.uid) == owner
    };
    let (owners_hpas, hpas): (Vec<_>, Vec<_>) = keda.hpas.iter().partition(is_owned);
    let is_pending = handoff.is_some_and(|it| !it.is_set) || !owners_hpas.is_empty();
    let has_scaled_object = matches!(keda.scaled_object, Child::Ours(_));
    HandoffState {
        other_hpas: hpas.into_iter().cloned().collect(),
        is_pending,
        fault: handoff
            .filter(|_| is_pending && has_scaled_object)
            .map(reverted_fault),
    }
}

/// Two autoscalers must not scale one workload, so scaling by the queue stops (CONF-3).
fn reverted_fault(handoff: &AutoscalerHandoff) -> Fault {
    let owner = &handoff.owner;
    let text = format!(
        "{owner} scales its workload again, because its annotation {AUTOSCALER_CLASS}: external was removed; restore \
         the annotation, or set spec.scaling.enabled of this actor to false"
    );
    Fault::until_change(Reason::RivalAutoscaler, text)
}

#[cfg(test)]
pub(in crate::reconcile) mod tests;
