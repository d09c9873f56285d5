//! Autoscaler handoff: an annotation on the owner of a target disables the owner's autoscaler, so that the queue scales
//! the target (SO-5). Setting it restarts the pods.

use std::sync::Arc;

use asya_shared::names::annotation::AUTOSCALER_CLASS;
use asya_shared::resolve::AutoscalerHandoff;
use k8s_openapi::jiff::Timestamp;

use super::rollout::inputs::{RolloutAction, RolloutDecision};
use super::scaling::ScalingTeardown;
use super::steps::ScalingStep;
use crate::fault::{Fault, Reason};
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{ContestedPart, FieldDecision, FieldView};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{HandoffChange, RolloutOutcome};
use crate::record::HpaRecord;

/// The step for the handoff annotation.
#[derive(Clone, Debug, PartialEq)]
pub enum HandoffStep {
    /// It should be set, as far as contention allows.
    Set(FieldDecision),
    Remove,
}

impl HandoffStep {
    /// What to write; `None` leaves the annotation as it is.
    pub fn change(&self) -> Option<HandoffChange> {
        match self {
            Self::Set(FieldDecision::Write) => Some(HandoffChange::Set),
            Self::Set(_) => None,
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

/// Decides, and sets a fault in `scaling` if the annotation was reverted and must not be written for now.
pub(super) fn plan_handoff(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<&mut ScalingStep>,
    rollout: Option<&RolloutDecision>,
    now: Timestamp,
) -> Option<HandoffStep> {
    let resolved = observed.resolved()?;
    let scaling = scaling?;
    let Some(handoff) = resolved.target.scale.handoff() else {
        return Some(HandoffStep::Set(FieldDecision::Keep));
    };
    let history = history?;
    match (&scaling, handoff.is_set) {
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
    if let (true, ScalingStep::Enabled(plan)) = (decision.is_contested(), &mut *scaling) {
        plan.fault = Some(reverted_fault(handoff));
    }
    // If no rollout is due, keep the owner's autoscaler until ours can replace it at once (SAFE-20).
    let is_waiting = scaling.waits_for().is_some() && rollout == Some(&RolloutDecision::NotNeeded);
    let is_due = decision != FieldDecision::Write || (is_due(rollout) && !is_waiting);
    is_due.then_some(HandoffStep::Set(decision))
}

/// Whether to write now: with a rollout, or if none is needed, so that pods restart only once (ROLL-3).
pub(super) fn is_due(rollout: Option<&RolloutDecision>) -> bool {
    matches!(
        rollout,
        Some(RolloutDecision::NotNeeded | RolloutDecision::Act(RolloutAction::Annotate(_)))
    )
}

/// The state of the handoff, as far as scaling depends on it.
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
