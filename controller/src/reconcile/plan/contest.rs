//! Contention over the `ScaledObject` of a binding (CONF-5). For a standalone actor, [`super::restore`] decides.

use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::steps::ScalingStep;
use super::{ChildStep, recorded};
use crate::fault::{Fault, Reason};
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

/// A field that other managers contest.
#[derive(Clone, Debug, PartialEq)]
pub enum ContestedField {
    /// Our fields of the `ScaledObject`, as desired (CONF-5).
    ScaledObject(Option<Value>),
    /// The replicas of this workload (CONF-4).
    Replicas(ObjectRef),
    /// The annotation on this owner of the target that claims scaling for the queue (CONF-3).
    Claim(ObjectRef),
}

impl ContestedField {
    /// Our fields of the `ScaledObject`; what is desired matters only after a loss.
    pub(super) fn scaled_object(observed: &Observed, decision: Option<&FieldDecision>) -> Self {
        let wanted = observed.scaling_objects().and_then(Result::ok);
        let wanted = wanted.filter(|_| matches!(decision, Some(FieldDecision::Lost(_))));
        Self::ScaledObject(wanted.map(|it| it.scaled_object.object.clone()))
    }

    /// The owner of the target that carries the claim.
    pub fn owner(&self) -> Option<&ObjectRef> {
        match self {
            Self::Claim(owner) => Some(owner),
            Self::ScaledObject(_) | Self::Replicas(_) => None,
        }
    }

    pub fn part(&self) -> Part {
        match self {
            Self::ScaledObject(_) => Part::ScaledObject,
            Self::Replicas(_) => Part::Replicas,
            Self::Claim(_) => Part::Autoscaler,
        }
    }

    /// The object that has it, as Kind/name; `name` is that of the `ScaledObject`.
    pub fn object(&self, name: &str) -> String {
        match self {
            Self::ScaledObject(_) => format!("ScaledObject/{name}"),
            Self::Replicas(object) | Self::Claim(object) => object.to_string(),
        }
    }

    /// Why scaling is not as desired once it is not written any more.
    pub fn stopped(&self, name: &str) -> Option<Fault> {
        let text = match self {
            Self::ScaledObject(_) => format!(
                "ScaledObject {name}: what the actor wants of it was changed again and again, so it is not written any more, and KEDA scales by what stands there (condition Conflict says by whom)"
            ),
            Self::Replicas(workload) => format!(
                "ScaledObject {name}: it is paused, because somebody else sets the replicas of {workload} again and again (condition Conflict says who)"
            ),
            Self::Claim(_) => return None,
        };
        Some(Fault::until_change(Reason::BindingConflict, text))
    }
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
