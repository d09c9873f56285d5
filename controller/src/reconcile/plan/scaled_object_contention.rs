//! Contention over the `ScaledObject` of a binding (CONF-5). That of a standalone actor is left to [`super::drift`].

use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::steps::ScalingStep;
use super::{ChildStep, recorded};
use crate::fault::{Fault, Reason};
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{ContestedPart, FieldDecision, FieldView};
use crate::reconcile::model::observed::Observed;

/// Decides, and keeps `scaling` from applying the `ScaledObject` while it must not be written.
pub(super) fn plan_scaled_object_contention(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<&mut ScalingStep>,
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
    let decision = history.decide(ContestedPart::ScaledObject, view, now);
    if decision.is_contested() {
        plan.scaled_object = ChildStep::Keep;
    }
    Some(decision)
}

/// A field that other managers contest.
#[derive(Clone, Debug, PartialEq)]
pub enum ContestedField {
    /// Our fields of the `ScaledObject`, as desired (CONF-5).
    ScaledObject(Option<Value>),
    /// The replicas of this workload (CONF-4).
    Replicas(ObjectRef),
    /// The handoff annotation on this owner of the target (CONF-3).
    Handoff(ObjectRef),
}

impl ContestedField {
    /// Our fields of the `ScaledObject`. The desired object is needed only after a conflict, to find the field.
    pub(super) fn scaled_object(observed: &Observed, decision: Option<&FieldDecision>) -> Self {
        let desired = observed.scaling_objects().and_then(Result::ok);
        let desired = desired.filter(|_| matches!(decision, Some(FieldDecision::RecordConflict)));
        Self::ScaledObject(desired.map(|it| it.scaled_object.object.clone()))
    }

    /// The owner of the target that carries the handoff annotation.
    pub fn owner(&self) -> Option<&ObjectRef> {
        match self {
            Self::Handoff(owner) => Some(owner),
            Self::ScaledObject(_) | Self::Replicas(_) => None,
        }
    }

    pub fn part(&self) -> ContestedPart {
        match self {
            Self::ScaledObject(_) => ContestedPart::ScaledObject,
            Self::Replicas(_) => ContestedPart::Replicas,
            Self::Handoff(_) => ContestedPart::Autoscaler,
        }
    }

    /// The object that has the field, as Kind/name; `name` is that of the `ScaledObject`.
    pub fn object(&self, name: &str) -> String {
        match self {
            Self::ScaledObject(_) => format!("ScaledObject/{name}"),
            Self::Replicas(object) | Self::Handoff(object) => object.to_string(),
        }
    }

    /// Why scaling is not as desired once the field is no longer written.
    pub fn yielded_fault(&self, name: &str) -> Option<Fault> {
        let text = match self {
            Self::ScaledObject(_) => format!(
                "ScaledObject {name}: the actor's settings were changed repeatedly, so the operator no longer writes \
                 them, and KEDA scales by the current ones (condition Conflict says who changes them)"
            ),
            Self::Replicas(workload) => format!(
                "ScaledObject {name}: paused, because another client repeatedly sets the replicas of {workload} \
                 (condition Conflict says which one)"
            ),
            Self::Handoff(_) => return None,
        };
        Some(Fault::until_change(Reason::BindingConflict, text))
    }
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
