//! Whether the owner of a target is told that the queue scales it, which costs its pods a restart (SO-5).

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
use crate::record::HpaRecord;

/// What to do about the annotation that tells the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Claiming {
    /// It is to stand there.
    Wanted(FieldDecision),
    /// It is given up.
    GiveUp,
}

impl Claiming {
    /// Whether it is written, and how: that it is to stand there, or not.
    pub fn writes(&self) -> Option<bool> {
        match self {
            Self::Wanted(FieldDecision::Write) => Some(true),
            Self::Wanted(_) => None,
            Self::GiveUp => Some(false),
        }
    }
}

/// Decides about it; where it is not to be written for now, `scaling` tells that.
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
        // It scales only what is claimed; who takes that back at once is faster than KEDA.
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
    // Where no rollout is due, the owner keeps its own autoscaler until ours may follow at once (SAFE-20).
    let waits = scaling.waits_for().is_some() && roll == Some(&Rolling::Rest);
    let is_due = contest != FieldDecision::Write || (is_due(roll) && !waits);
    is_due.then_some(Claiming::Wanted(contest))
}

/// With the rollout, or when none is to come: one restart, not two (ROLL-3).
pub(super) fn is_due(roll: Option<&Rolling>) -> bool {
    matches!(roll, Some(Rolling::Rest | Rolling::Act(Act::Annotate(_))))
}

/// What the owner's claim makes of scaling.
pub(super) struct Claimed {
    /// Autoscalers besides the owner's own.
    pub hpas: Vec<Arc<HpaRecord>>,
    /// The owner still scales.
    pub waits: bool,
    /// It does so again.
    pub lost: Option<Fault>,
}

/// Judges by whom a target is scaled whose owner leaves that to others when it is told so.
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
