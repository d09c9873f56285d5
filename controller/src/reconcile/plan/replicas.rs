//! Contention over the target's replicas (CONF-4): whether anything but the autoscaler sets them. The operator never
//! writes them: it counts losses, and the fifth pauses our `ScaledObject`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::steps::ScalingStep;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::field_owner::{self, Segment, applied_at, written_at};
use crate::reconcile::contention::{FieldView, Part, State, history};
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::observed::Observed;
use crate::record::{AppliedRecord, ScaledObjectRecord};
use crate::scaling::replicas::hpa_of;

/// Path of the field.
pub const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Decides for the target; `None` while that is impossible.
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
        // Replicas are never ours to write: record a loss, so that the rival is identified.
        FieldDecision::Write => FieldDecision::Lost(specs),
        contest => contest,
    })
}

/// Whether the target's replicas differ from what the HPA asks for. Zero is ignored: KEDA sets it, not the HPA.
fn differs(observed: &Observed, resolved: &Resolved) -> bool {
    let target = &resolved.target;
    if target.scale.object() != Some(&target.workload) {
        return false;
    }
    let scaled_object = observed.scaling.scaled_object.ours();
    let hpa = scaled_object.and_then(|it| hpa_of(it, &observed.scaling.hpas));
    // Ignore what the HPA asked of an earlier workload.
    let scaled = observed.binding.as_ref();
    let scaled = scaled.and_then(|it| it.scaling_of_target());
    let hpa = hpa.filter(|hpa| scaled.is_some_and(|it| it.target == hpa.target));
    let asked = hpa.map(|hpa| hpa.desired).filter(|desired| *desired > 0);
    let live = resolved.replicas.filter(|live| *live > 0);
    matches!((asked, live), (Some(asked), Some(live)) if asked != live)
}

/// Who sets the replicas of a workload with this metadata, unless it is an autoscaler: an HPA writes replicas before it
/// reports the number it wants, and KEDA scales up from zero.
pub fn rival(live: &ObjectMeta) -> Option<String> {
    let rival = field_owner::named(live, &Segment::path(&REPLICAS))?;
    let name = rival.split(' ').next().unwrap_or_default();
    let autoscalers = ["kube-controller-manager", "keda-operator", "keda"];
    (!autoscalers.contains(&name)).then_some(rival)
}

/// Whether they were last set before the autoscaler began to scale this workload with our `ScaledObject`. Such a write
/// does not count: an HPA with a new target reports the number it wanted of its last one for up to 15 s.
pub fn is_set_before(live: &ObjectMeta, scaled_object: Option<&ObjectMeta>) -> bool {
    let scales_since = scaled_object.and_then(|it| {
        let entries = it.managed_fields.as_deref().unwrap_or_default();
        applied_at(entries, ScaledObjectRecord::MANAGER)
    });
    let entries = live.managed_fields.as_deref().unwrap_or_default();
    let set = written_at(entries, &Segment::path(&REPLICAS));
    set.zip(scales_since)
        .is_some_and(|(set, since)| set < since)
}

#[cfg(test)]
mod tests;
