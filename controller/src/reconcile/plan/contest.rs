//! Contention over the `ScaledObject` of a binding (CONF-5). For a standalone actor, [`super::restore`] decides.

use k8s_openapi::jiff::Timestamp;

use super::steps::ScalingStep;
use super::{ChildStep, recorded};
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::{FieldView, Part};
use crate::reconcile::model::observed::Observed;

/// Decides, and keeps `scaling` from applying the object while it must not be written.
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
        stands: !matches!(plan.scaled_object, ChildStep::Apply { .. }),
    };
    if !sight.stands && !sight.written {
        // The desired state has changed, so this is no loss.
        return Some(FieldDecision::Write);
    }
    let conflicts = &observed.previous.conflicts;
    let specs = resolved.specs(observed.actor.generation);
    let contest = FieldDecision::of((conflicts, uid, Part::ScaledObject), sight, specs, now);
    if contest.is_lost() {
        plan.scaled_object = ChildStep::Keep;
    }
    Some(contest)
}

/// Whether the existing object is the one that we applied, in its current desired form.
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
