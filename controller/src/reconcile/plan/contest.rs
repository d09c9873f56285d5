//! What is done about our `ScaledObject` where somebody changes it (CONF-5). Without a binding it is applied again at
//! once, as every child.

use k8s_openapi::jiff::Timestamp;

use super::steps::ScalingStep;
use super::{Step, recorded};
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::{FieldView, Part};
use crate::reconcile::model::observed::Observed;

/// Decides about it, and keeps `scaling` from applying it where that is not to be.
pub(super) fn plan(
    observed: &Observed,
    scaling: Option<&mut ScalingStep>,
    now: Timestamp,
) -> Option<FieldDecision> {
    let plan = match scaling? {
        ScalingStep::Wanted(plan) => plan,
        ScalingStep::Unwanted(_) | ScalingStep::Refused(..) => return Some(FieldDecision::Over),
    };
    let resolved = observed.resolved()?;
    let uid = resolved.uid()?;
    let sight = FieldView {
        needed: plan.fault.is_none(),
        written: is_written(observed),
        stands: !matches!(plan.scaled_object, Step::Apply { .. }),
    };
    if !sight.stands && !sight.written {
        // What we want has changed: nobody has taken that back.
        return Some(FieldDecision::Write);
    }
    let conflicts = &observed.previous.conflicts;
    let specs = resolved.specs(observed.actor.generation);
    let contest = FieldDecision::of((conflicts, uid, Part::ScaledObject), sight, specs, now);
    if contest.is_lost() {
        plan.scaled_object = Step::Keep;
    }
    Some(contest)
}

/// Whether the object that there is is the one that we applied, as we want it today.
pub(super) fn is_written(observed: &Observed) -> bool {
    let Some(found) = observed.scaling.scaled_object.ours() else {
        return false;
    };
    let Some(Ok(wanted)) = observed.scaling_objects() else {
        return false;
    };
    let inventory = &observed.previous.inventory;
    recorded(inventory, "ScaledObject", &found.metadata.key.name).is_some_and(|applied| {
        applied.hash.as_deref() == Some(&*wanted.scaled_object.hash)
            && applied.uid.as_deref() == Some(&*found.metadata.uid)
            && applied.fingerprint.is_some()
    })
}

#[cfg(test)]
pub(super) mod tests;
