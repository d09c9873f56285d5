//! The fields of a binding that other managers contest (CONF-3 to CONF-5), and how conflicts over them are reported.

use asya_shared::resolve::ObjectRef;
use serde_json::Value;

use crate::fault::{Fault, Reason};
use crate::reconcile::contention::{ContestedPart, FieldDecision, SpecRevision};
use crate::reconcile::model::observed::Observed;
use crate::record::Key;

#[derive(Debug)]
pub struct ContestedFields {
    /// The `ScaledObject`, which has the actor's name.
    pub scaled_object_key: Key,
    /// The current revision of the specs.
    pub revision: SpecRevision,
    pub scaled_object: ContestedField,
    /// `None` while the target is not resolved.
    pub replicas: Option<ContestedField>,
    pub handoff: ContestedField,
}

impl ContestedFields {
    /// `scaled_object` is the decision on the `ScaledObject`'s fields.
    pub(super) fn new(observed: &Observed, scaled_object: Option<&FieldDecision>) -> Self {
        let resolved = observed.resolved();
        // The desired object is needed only after a conflict, to find the field.
        let desired = observed
            .scaling_objects()
            .and_then(Result::ok)
            .filter(|_| matches!(scaled_object, Some(FieldDecision::RecordConflict)));
        let handoff = resolved.and_then(|it| it.target.scale.handoff());
        Self {
            scaled_object_key: observed.key().clone(),
            revision: resolved
                .map(|it| it.revision(observed.actor.generation))
                .unwrap_or_default(),
            scaled_object: ContestedField::ScaledObject(
                desired.map(|it| it.scaled_object.object.clone()),
            ),
            replicas: resolved.map(|it| ContestedField::Replicas(it.target.workload.clone())),
            handoff: ContestedField::Autoscaler(
                handoff.map_or_else(ObjectRef::default, |it| it.owner.clone()),
            ),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ContestedField {
    /// Our fields of the `ScaledObject`, as desired (CONF-5).
    ScaledObject(Option<Value>),
    /// The replicas of this workload (CONF-4).
    Replicas(ObjectRef),
    /// The handoff annotation on this object, whose controller writes the target (CONF-3).
    Autoscaler(ObjectRef),
}

impl ContestedField {
    /// The owner of the target that carries the handoff annotation.
    pub fn owner(&self) -> Option<&ObjectRef> {
        match self {
            Self::Autoscaler(owner) => Some(owner),
            Self::ScaledObject(_) | Self::Replicas(_) => None,
        }
    }

    pub fn part(&self) -> ContestedPart {
        match self {
            Self::ScaledObject(_) => ContestedPart::ScaledObject,
            Self::Replicas(_) => ContestedPart::Replicas,
            Self::Autoscaler(_) => ContestedPart::Autoscaler,
        }
    }

    /// The object that has the field, as Kind/name; `name` is that of the `ScaledObject`.
    pub fn object(&self, name: &str) -> String {
        match self {
            Self::ScaledObject(_) => format!("ScaledObject/{name}"),
            Self::Replicas(object) | Self::Autoscaler(object) => object.to_string(),
        }
    }

    /// The fault to report once we stop writing the field.
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
            Self::Autoscaler(_) => return None,
        };
        Some(Fault::until_change(Reason::BindingConflict, text))
    }
}
