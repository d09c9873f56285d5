//! What is done about our `ScaledObject` where somebody changes it (CONF-5). Without a binding it is applied again at
//! once, as every child.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{ScalingStep, Step, recorded};
use crate::reconcile::conflict::ledger::{self, Forgiven};
use crate::reconcile::conflict::{self, Part, Sight, Specs};
use crate::reconcile::observe::Observed;

/// What to do beside the plan of scaling.
#[derive(Clone, Debug, PartialEq)]
pub enum Contest {
    /// Nobody contests it, or it is not needed.
    Over,
    /// It is as wanted, after losses; that is forgiven when it has stood for so long.
    Stands(Duration),
    /// It may be applied.
    Apply,
    /// A field of it was changed.
    Lost(Specs),
    /// It is not applied before this has passed.
    Wait(Duration),
    /// It is not applied any more.
    Stop,
}

/// Decides about it, and keeps `scaling` from applying it where that is not to be.
pub(super) fn plan(
    observed: &Observed,
    scaling: Option<&mut ScalingStep>,
    now: Timestamp,
) -> Option<Contest> {
    let plan = match scaling? {
        ScalingStep::Wanted(plan) => plan,
        ScalingStep::Unwanted(_) | ScalingStep::Refused(..) => return Some(Contest::Over),
    };
    let resolved = observed.resolved()?;
    let uid = resolved.uid()?;
    let conflicts = &observed.previous.conflicts;
    let specs = Specs {
        generation: observed.actor.generation,
        target: resolved.spec.to_string(),
    };
    let sight = Sight {
        needed: plan.fault.is_none(),
        written: is_written(observed),
        stands: !matches!(plan.scaled_object, Step::Apply { .. }),
    };
    if !sight.stands && !sight.written {
        // What we want has changed: nobody has taken that back.
        return Some(Contest::Apply);
    }
    let state = ledger::state(conflicts, uid, Part::ScaledObject);
    let contest = match state.decide(sight, &specs, now) {
        conflict::Step::Rest => match ledger::forgiven(conflicts, uid, Part::ScaledObject, now) {
            Forgiven::Now => Contest::Over,
            Forgiven::In(wait) => Contest::Stands(wait),
        },
        conflict::Step::Write => Contest::Apply,
        conflict::Step::Lost => Contest::Lost(specs),
        conflict::Step::Wait(wait) => Contest::Wait(wait),
        conflict::Step::Stop => Contest::Stop,
    };
    if matches!(contest, Contest::Lost(_) | Contest::Wait(_) | Contest::Stop) {
        plan.scaled_object = Step::Keep;
    }
    Some(contest)
}

/// Whether the object that there is is the one that we applied, as we want it today.
fn is_written(observed: &Observed) -> bool {
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
