//! Whether somebody beside the autoscaler sets the number of a target's pods (CONF-4). It is never written by us: losses
//! are counted, and the fifth pauses our `ScaledObject`.

use k8s_openapi::jiff::Timestamp;

use super::steps::ScalingStep;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::{FieldView, Part, State, history};
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::observed::Observed;
use crate::scaling::replicas::hpa_of;

/// Decides about it; `None` while nobody can tell.
pub(super) fn plan(
    observed: &Observed,
    scaling: Option<&ScalingStep>,
    now: Timestamp,
) -> Option<FieldDecision> {
    let resolved = observed.resolved()?;
    let wanted = match scaling? {
        ScalingStep::Wanted(plan) => plan.fault.is_none(),
        ScalingStep::Unwanted(_) | ScalingStep::Refused(..) => false,
    };
    if !wanted {
        return Some(FieldDecision::Over);
    }
    let uid = resolved.uid()?;
    let conflicts = &observed.previous.conflicts;
    let specs = resolved.specs(observed.actor.generation);
    match history::state(conflicts, uid, Part::Replicas) {
        State::Stopped(before) if before == specs => return Some(FieldDecision::Stop),
        State::Stopped(_) => return Some(FieldDecision::Over),
        State::Idle | State::Held(_) | State::Waiting(..) => {}
    }
    let sight = FieldView {
        needed: true,
        written: true,
        stands: !differs(observed, resolved),
    };
    let of = (&conflicts[..], uid, Part::Replicas);
    Some(match FieldDecision::of(of, sight, specs.clone(), now) {
        // It is never ours to write: whoever set it is to be found out.
        FieldDecision::Write => FieldDecision::Lost(specs),
        contest => contest,
    })
}

/// Whether the target asks for other pods than the autoscaler, which has nothing to say of 0: that is KEDA's.
fn differs(observed: &Observed, resolved: &Resolved) -> bool {
    let target = &resolved.target;
    if target.scale.object() != Some(&target.workload) {
        return false;
    }
    let scaled_object = observed.scaling.scaled_object.ours();
    let hpa = scaled_object.and_then(|it| hpa_of(it, &observed.scaling.hpas));
    // What it asked of an earlier workload says nothing about this one.
    let scaled = observed.binding.as_ref();
    let scaled = scaled.and_then(|it| it.scaling_of_target());
    let hpa = hpa.filter(|hpa| scaled.is_some_and(|it| it.target == hpa.target));
    let asked = hpa.map(|hpa| hpa.desired).filter(|desired| *desired > 0);
    let live = resolved.replicas.filter(|live| *live > 0);
    matches!((asked, live), (Some(asked), Some(live)) if asked != live)
}

#[cfg(test)]
mod tests;
