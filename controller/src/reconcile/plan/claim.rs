//! Whether to tell the owner of a target that the queue scales it, which restarts its pods (SO-5).

use std::sync::Arc;

use asya_shared::names::annotation::AUTOSCALER_CLASS;
use asya_shared::resolve::Claim;
use k8s_openapi::jiff::Timestamp;

use super::roll::facts::{Act, Rolling};
use super::scaling::Removal;
use super::steps::ScalingStep;
use crate::fault::{Fault, Reason};
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::{FieldView, Part};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Rolled;
use crate::record::HpaRecord;

/// What to do about the annotation that claims scaling from the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Claiming {
    /// It should be set.
    Wanted(FieldDecision),
    /// Remove it.
    GiveUp,
}

impl Claiming {
    /// What to write: `true` sets the annotation, `false` removes it, `None` leaves it.
    pub fn writes(&self) -> Option<bool> {
        match self {
            Self::Wanted(FieldDecision::Write) => Some(true),
            Self::Wanted(_) => None,
            Self::GiveUp => Some(false),
        }
    }
}

/// Whether the annotation is written in this reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimWrite {
    /// The rollout has written it.
    WithRollout,
    /// By itself: no rollout is due.
    Alone,
    /// Not in this reconcile.
    Not,
}

/// Decides from the outcome of the rollout.
pub fn after_rollout(rolled: &Rolled) -> ClaimWrite {
    match rolled {
        Rolled::Asked(..) => ClaimWrite::WithRollout,
        Rolled::Rest => ClaimWrite::Alone,
        _ => ClaimWrite::Not,
    }
}

/// Decides, and sets a fault in `scaling` if the annotation was lost and must not be written for now.
pub(super) fn plan(
    observed: &Observed,
    scaling: Option<&mut ScalingStep>,
    roll: Option<&Rolling>,
    now: Timestamp,
) -> Option<Claiming> {
    let (resolved, scaling) = (observed.resolved()?, scaling?);
    let Some(claim) = resolved.target.scale.claim() else {
        return Some(Claiming::Wanted(FieldDecision::Over));
    };
    let uid = resolved.uid()?;
    match (&scaling, claim.is_made) {
        (ScalingStep::Unwanted(Removal { released: true, .. }), true) => {
            return is_due(roll).then_some(Claiming::GiveUp);
        }
        (ScalingStep::Unwanted(_), _) => return Some(Claiming::Wanted(FieldDecision::Over)),
        (ScalingStep::Wanted(plan), false) if plan.fault.is_some() => return None,
        (ScalingStep::Wanted(_) | ScalingStep::Refused(..), _) => {}
    }
    let previous = &observed.previous;
    let sight = FieldView {
        needed: true,
        // Our `ScaledObject` exists only after a claim. Status covers a rival that reverts the claim before KEDA acts.
        written: matches!(observed.scaling.scaled_object, Child::Ours(_))
            || previous.claimed.as_deref() == Some(uid),
        stands: claim.is_made,
    };
    let specs = resolved.specs(observed.actor.generation);
    let of = (&previous.conflicts[..], uid, Part::Autoscaler);
    let contest = FieldDecision::of(of, sight, specs, now);
    if let (true, ScalingStep::Wanted(plan)) = (contest.is_lost(), &mut *scaling) {
        plan.fault = Some(lost(claim));
    }
    // If no rollout is due, leave the owner its own autoscaler until ours can follow at once (SAFE-20).
    let waits = scaling.waits_for().is_some() && roll == Some(&Rolling::Rest);
    let is_due = contest != FieldDecision::Write || (is_due(roll) && !waits);
    is_due.then_some(Claiming::Wanted(contest))
}

/// Whether to write now: along with a rollout, or if none is coming, so that pods restart once, not twice (ROLL-3).
pub(super) fn is_due(roll: Option<&Rolling>) -> bool {
    matches!(roll, Some(Rolling::Rest | Rolling::Act(Act::Annotate(_))))
}

/// What the claim means for scaling.
pub(super) struct Claimed {
    /// HPAs other than the owner's own.
    pub hpas: Vec<Arc<HpaRecord>>,
    /// The owner's autoscaler is still in force.
    pub waits: bool,
    /// The owner scales the target again.
    pub lost: Option<Fault>,
}

/// Determines who scales a target whose owner disables its own autoscaler on request.
pub(super) fn judge(observed: &Observed, claim: Option<&Claim>) -> Claimed {
    let seen = &observed.scaling;
    let owner = claim.and_then(|it| it.owner.uid.as_deref());
    let is_its = |hpa: &&Arc<HpaRecord>| {
        let controller = hpa.metadata.controller.as_ref();
        owner.is_some() && controller.map(|it| &*it.uid) == owner
    };
    let (own, hpas): (Vec<_>, Vec<_>) = seen.hpas.iter().partition(is_its);
    let waits = claim.is_some_and(|it| !it.is_made) || !own.is_empty();
    let stands = matches!(seen.scaled_object, Child::Ours(_));
    Claimed {
        hpas: hpas.into_iter().cloned().collect(),
        waits,
        lost: claim.filter(|_| waits && stands).map(lost),
    }
}

/// CONF-3
fn lost(claim: &Claim) -> Fault {
    let owner = &claim.owner;
    let text = format!(
        "{owner} scales its workload again, because annotation {AUTOSCALER_CLASS}: external was taken from it; set it there yourself, or set spec.scaling.enabled of this actor to false"
    );
    Fault::until_change(Reason::RivalAutoscaler, text)
}

#[cfg(test)]
mod tests;
