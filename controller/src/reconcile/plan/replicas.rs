//! Contention over the target's replicas (CONF-4): detects writers other than the autoscaler. The operator never writes
//! replicas: it counts conflicts, and the fifth pauses our `ScaledObject`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::steps::ScalingStep;
use crate::reconcile::contention::field_manager::{self, PathElement, applied_at, written_at};
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{ContentionState, ContestedPart, FieldDecision, FieldView};
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::observed::Observed;
use crate::record::{AppliedRecord, ScaledObjectRecord};
use crate::scaling::replicas::hpa_of;

pub const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Decides for the target; `None` while that is impossible.
pub(super) fn plan_replicas(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<&ScalingStep>,
    now: Timestamp,
) -> Option<FieldDecision> {
    let resolved = observed.resolved()?;
    let needed = match scaling? {
        ScalingStep::Enabled(plan) => plan.fault.is_none(),
        ScalingStep::Disabled(_) | ScalingStep::Blocked(..) => false,
    };
    if !needed {
        return Some(FieldDecision::Keep);
    }
    let history = history?;
    let part = ContestedPart::Replicas;
    if let ContentionState::Yielded(revision) = history.state(part) {
        let is_current = revision == history.revision;
        return Some(if is_current {
            FieldDecision::Yield
        } else {
            FieldDecision::Keep
        });
    }
    let view = FieldView {
        needed: true,
        // The HPA sets the number that it reports as desired.
        was_set: true,
        has_desired_value: !differ_from_hpa(observed, resolved),
    };
    Some(match history.decide(part, view, now) {
        // We never write replicas: record a conflict, so that the other writer is identified.
        FieldDecision::Write => FieldDecision::RecordConflict,
        decision => decision,
    })
}

fn differ_from_hpa(observed: &Observed, resolved: &Resolved) -> bool {
    let target = &resolved.target;
    if target.scale.object() != Some(&target.workload) {
        return false;
    }
    let scaled_object = observed.scaling.scaled_object.ours();
    let hpa = scaled_object.and_then(|scaled_object| hpa_of(scaled_object, &observed.scaling.hpas));
    // Ignore an HPA that still targets an earlier workload.
    let binding = observed.binding.as_ref();
    let scaling = binding.and_then(|it| it.target_scaling());
    let hpa = hpa.filter(|hpa| scaling.is_some_and(|scaling| scaling.target == hpa.target));
    differ(hpa.map(|hpa| hpa.desired), resolved.replicas)
}

/// Whether replicas are not what their HPA desires. Zero is ignored, because KEDA sets it, not the HPA.
pub fn differ(desired: Option<i32>, current: Option<i32>) -> bool {
    let numbers = desired.zip(current);
    numbers.is_some_and(|(desired, current)| desired > 0 && current > 0 && desired != current)
}

/// The field manager that last wrote a workload's replicas, unless it is an autoscaler: an HPA writes them before it
/// reports its desired number, and KEDA scales up from zero. GKE's HPA controller is part of its `vpa-recommender`; a
/// recommender of the Vertical Pod Autoscaler itself writes no replicas.
pub fn other_field_manager(workload: &ObjectMeta) -> Option<String> {
    let manager = field_manager::describe_manager(workload, &PathElement::path(&REPLICAS))?;
    let name = manager.split(' ').next().unwrap_or_default();
    let autoscalers = [
        "kube-controller-manager",
        "vpa-recommender",
        "keda-operator",
        "keda",
    ];
    (!autoscalers.contains(&name)).then_some(manager)
}

/// Whether the replicas were last set before our `ScaledObject` began to scale this workload. Such a write is no
/// conflict: for up to 15 s, an HPA with a new target still reports the number that it desired for the previous one.
pub fn predate_scaling(workload: &ObjectMeta, scaled_object: Option<&ObjectMeta>) -> bool {
    let scales_since = scaled_object.and_then(|scaled_object| {
        let entries = scaled_object.managed_fields.as_deref().unwrap_or_default();
        applied_at(entries, ScaledObjectRecord::MANAGER)
    });
    let entries = workload.managed_fields.as_deref().unwrap_or_default();
    let set = written_at(entries, &PathElement::path(&REPLICAS));
    set.zip(scales_since)
        .is_some_and(|(set, since)| set < since)
}

#[cfg(test)]
mod tests;
