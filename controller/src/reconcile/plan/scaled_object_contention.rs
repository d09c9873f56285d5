//! Contention over the `ScaledObject` of a binding (CONF-5). [`super::drift`] handles that of a standalone actor.

use k8s_openapi::jiff::Timestamp;

use super::steps::ScalingStep;
use super::{ChildStep, recorded};
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{ContestedPart, FieldDecision, FieldView};
use crate::reconcile::model::observed::Observed;

/// Decides for the `ScaledObject`; `None` while that is impossible.
pub(super) fn plan_scaled_object_contention(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<&ScalingStep>,
    now: Timestamp,
) -> Option<FieldDecision> {
    let plan = match scaling? {
        ScalingStep::Enabled(plan) => plan,
        ScalingStep::Disabled(_) | ScalingStep::Blocked(..) => {
            return Some(FieldDecision::Keep);
        }
    };
    let history = history?;
    let view = FieldView {
        needed: plan.fault.is_none(),
        was_set: is_written(observed),
        has_desired_value: !matches!(plan.scaled_object, ChildStep::Apply { .. }),
    };
    if !view.has_desired_value && !view.was_set {
        // The desired state has changed, so this is not a conflict.
        return Some(FieldDecision::Write);
    }
    Some(history.decide(ContestedPart::ScaledObject, view, now))
}

/// Whether the existing object is the one that we applied with the current desired content.
pub(super) fn is_written(observed: &Observed) -> bool {
    let Some(existing) = observed.scaling.scaled_object.ours() else {
        return false;
    };
    let Some(Ok(desired)) = observed.scaling_objects() else {
        return false;
    };
    let inventory = &observed.previous.inventory;
    recorded(inventory, "ScaledObject", &existing.metadata.key.name).is_some_and(|applied| {
        applied.hash.as_deref() == Some(&*desired.scaled_object.hash)
            && applied.uid.as_deref() == Some(&*existing.metadata.uid)
            && applied.fingerprint.is_some()
    })
}

#[cfg(test)]
pub(super) mod tests;
