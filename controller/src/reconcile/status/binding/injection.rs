//! The dry-run state in the status.

use asya_shared::api::{BindingStrategy, InjectionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::injection::InjectionInputs;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::BindingOutcome;
use crate::reconcile::model::target_pods::TargetPodCounts;

/// The dry-run state that the webhook and the next reconcile read (SAFE-1).
pub(super) fn injection_status(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    counted: Option<&TargetPodCounts>,
    since: Option<&Time>,
    now: Timestamp,
) -> Option<InjectionStatus> {
    let previous = observed.previous.injection.as_ref();
    let bound = observed
        .desired_binding()
        .filter(|bound| bound.strategy == BindingStrategy::Pod);
    let Some(hash) = bound.and_then(|bound| bound.injected_hash.as_deref()) else {
        return previous.cloned();
    };
    let inputs = InjectionInputs {
        previous,
        hash,
        generation: observed.actor.generation,
        limits: binding.injection().and_then(|it| it.limits.as_ref()),
        injected: counted.is_some_and(|counts| counts.current > 0),
        injected_for_any_actor: counted.is_some_and(|counts| counts.injected_for_any_actor > 0),
    };
    let binds = since.is_some() && observed.previous.bound_since.is_none();
    inputs.status_after(&outcome.probe.outcome, binds, now)
}
