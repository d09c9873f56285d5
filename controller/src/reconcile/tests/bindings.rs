//! Bindings as observed.

use asya_shared::resolve::Target;

use crate::fault::Fault;
use crate::reconcile::model::binding::{
    ObservedBinding, ObservedInjection, RefusedBinding, Resolved, ResolvedBinding,
};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::ObservedUnbinding;

/// A resolved target with one replica, whose pod template has none of our fields.
pub(crate) fn resolved(target: Target) -> Resolved {
    Resolved {
        target,
        replicas: Some(1),
        spec_hash: "spec".into(),
        our_template_fields: None,
    }
}

/// A binding to this target, of which nothing else has been observed.
pub(crate) fn binding_to(target: Resolved) -> ResolvedBinding {
    ResolvedBinding {
        target,
        injection: ObservedInjection::default(),
        template_actor: None,
        rollout: None,
        scaling: None,
    }
}

/// A binding whose target cannot be bound, of which nothing else has been observed.
pub(crate) fn refused(fault: Fault) -> RefusedBinding {
    RefusedBinding {
        fault,
        injection: ObservedInjection::default(),
    }
}

impl From<ResolvedBinding> for ObservedBinding {
    fn from(binding: ResolvedBinding) -> Self {
        Self::Resolved(Box::new(binding))
    }
}

impl From<RefusedBinding> for ObservedBinding {
    fn from(binding: RefusedBinding) -> Self {
        Self::Refused(Box::new(binding))
    }
}

impl From<ObservedUnbinding> for ObservedBinding {
    fn from(unbinding: ObservedUnbinding) -> Self {
        Self::Unbinding(Some(Box::new(unbinding)))
    }
}

impl ObservedBinding {
    /// The binding of a resolved target, to change it.
    #[track_caller]
    pub(crate) fn resolved_mut(&mut self) -> &mut ResolvedBinding {
        match self {
            Self::Resolved(binding) => binding,
            other => panic!("the target is not resolved: {other:?}"),
        }
    }
}

impl Observed {
    /// The binding of a resolved target, to change it.
    #[track_caller]
    pub(crate) fn resolved_mut(&mut self) -> &mut ResolvedBinding {
        self.binding.as_mut().unwrap().resolved_mut()
    }
}
