//! Whether somebody beside the autoscaler sets the number of a target's pods (CONF-4). It is never written by us: losses
//! are counted, and the fifth pauses our `ScaledObject`.

use std::time::Duration;

use asya_shared::resolve::Scale;
use k8s_openapi::jiff::Timestamp;

use super::ScalingStep;
use crate::reconcile::conflict::ledger::{self, Forgiven};
use crate::reconcile::conflict::{Part, Sight, Specs, State, Step};
use crate::reconcile::observe::Observed;
use crate::reconcile::observe::binding::Resolved;
use crate::scaling::replicas::hpa_of;

/// What is to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Replicas {
    /// Nobody does, or nobody cares.
    Over,
    /// Somebody did; that is forgiven when nobody has for so long.
    Calm(Duration),
    /// It is not what the autoscaler asks for: whoever set it is to be found out.
    Suspect(Specs),
    /// The next loss is not counted before this has passed.
    Wait(Duration),
    /// Our `ScaledObject` is paused.
    Paused,
}

/// Decides about it; `None` while nobody can tell.
pub(super) fn plan(
    observed: &Observed,
    scaling: Option<&ScalingStep>,
    now: Timestamp,
) -> Option<Replicas> {
    let resolved = observed.resolved()?;
    let wanted = match scaling? {
        ScalingStep::Wanted(plan) => plan.fault.is_none(),
        ScalingStep::Unwanted(_) | ScalingStep::Refused(..) => false,
    };
    if !wanted {
        return Some(Replicas::Over);
    }
    let uid = resolved.uid()?;
    let conflicts = &observed.previous.conflicts;
    let specs = specs(observed.actor.generation, resolved);
    let state = ledger::state(conflicts, uid, Part::Replicas);
    match &state {
        State::Stopped(before) if *before == specs => return Some(Replicas::Paused),
        State::Stopped(_) => return Some(Replicas::Over),
        State::Idle | State::Held(_) | State::Waiting(..) => {}
    }
    let sight = Sight {
        needed: true,
        written: true,
        stands: !differs(observed, resolved),
    };
    Some(match state.decide(sight, &specs, now) {
        Step::Rest => match ledger::forgiven(conflicts, uid, Part::Replicas, now) {
            Forgiven::Now => Replicas::Over,
            Forgiven::In(wait) => Replicas::Calm(wait),
        },
        Step::Lost | Step::Write => Replicas::Suspect(specs),
        Step::Wait(wait) => Replicas::Wait(wait),
        Step::Stop => Replicas::Paused,
    })
}

/// The specs for which our `ScaledObject` is paused.
pub fn specs(generation: i64, resolved: &Resolved) -> Specs {
    Specs {
        generation,
        target: resolved.spec.to_string(),
    }
}

/// Whether the target asks for other pods than the autoscaler, which has nothing to say of 0: that is KEDA's.
fn differs(observed: &Observed, resolved: &Resolved) -> bool {
    let target = &resolved.target;
    if target.scale != Scale::Object(target.workload.clone()) {
        return false;
    }
    let scaled_object = observed.scaling.scaled_object.ours();
    let hpa = scaled_object.and_then(|it| hpa_of(it, &observed.scaling.hpas));
    let asked = hpa.map(|hpa| hpa.desired).filter(|desired| *desired > 0);
    let live = resolved.replicas.filter(|live| *live > 0);
    matches!((asked, live), (Some(asked), Some(live)) if asked != live)
}

#[cfg(test)]
mod tests;
