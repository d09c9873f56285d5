//! What to do about an actor whose workload another controller makes: what pods get, the webhook puts into them.

use asya_shared::resolve::Scale;
use k8s_openapi::jiff::Timestamp;

use super::{Bind, Plan, Rest, ScalingStep, Wake, has_finalizer, plan_queue};
use crate::reconcile::Reason;
use crate::reconcile::observe::Observed;
use crate::reconcile::observe::binding::BindingSeen;
use crate::scaling::plan::{self as scaling, Removal, plan_removal, plan_scaling};

/// Decides what to do about a binding that lives.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let seen = observed.binding.as_ref();
    let scaling = seen.and_then(|seen| plan_scaling_step(observed, seen, now));
    if observed.actor.annotations.paused {
        return Plan::Rest(Rest {
            workload: None,
            scaling: scaling.as_ref().and_then(ScalingStep::fault),
        });
    }
    Plan::Bind(Bind {
        add_finalizer: !has_finalizer(observed),
        queue: plan_queue(observed),
        wake: seen.and_then(|seen| plan_wake(observed, seen, scaling.as_ref()?)),
        scaling,
    })
}

/// SO-6: KEDA has let go, as status tells that it did not before; no HPA wakes what has no pods.
fn plan_wake(observed: &Observed, binding: &BindingSeen, scaling: &ScalingStep) -> Option<Wake> {
    let ScalingStep::Unwanted(Removal { released: true, .. }) = scaling else {
        return None;
    };
    observed.previous.scaled_object_ref.as_ref()?;
    let resolved = binding.target.as_ref()?.as_ref().ok()?;
    let Scale::Object(object) = &resolved.target.scale else {
        return None;
    };
    let scaling = observed.desired.as_ref().ok()?.spec.scaling.as_ref();
    Some(Wake {
        object: object.clone(),
        replicas: scaling.map_or(1, |it| it.min_replicas_in_force().max(1)),
    })
}

/// SO-1: on what the target resolves to, and only while that is there.
fn plan_scaling_step(
    observed: &Observed,
    binding: &BindingSeen,
    now: Timestamp,
) -> Option<ScalingStep> {
    let seen = &observed.scaling;
    let removal = || plan_removal(&seen.scaled_object, &seen.trigger_authentication, now);
    if !observed.bound()?.scales || is_lost(binding) {
        return Some(ScalingStep::Unwanted(removal()));
    }
    let scaling = match binding.scaling.as_ref()? {
        Ok(scaling) => scaling,
        Err(fault) => return Some(ScalingStep::Refused(removal(), fault.clone())),
    };
    Some(ScalingStep::Wanted(plan_scaling(&scaling::Facts {
        actor: &observed.key().name,
        wanted: scaling.objects.as_ref(),
        installed: seen.installed,
        target: &scaling.target,
        target_exists: true,
        scaled_object: &seen.scaled_object,
        trigger_authentication: &seen.trigger_authentication,
        hpas: &seen.hpas,
        scaled_objects: &seen.scaled_objects,
        inventory: &observed.previous.inventory,
    })))
}

/// BIND-42: a `ScaledObject` of what is gone, or is another actor's, does harm. Of what cannot be read just now it does
/// not.
fn is_lost(binding: &BindingSeen) -> bool {
    let fault = binding.target.as_ref().and_then(|it| it.as_ref().err());
    fault.is_some_and(|fault| {
        matches!(
            fault.reason,
            Reason::TargetNotFound
                | Reason::KindNotInstalled
                | Reason::AlreadyBound
                | Reason::UnsupportedTarget
                | Reason::CrossNamespace
                | Reason::NamespaceExcluded
        )
    })
}

#[cfg(test)]
mod tests;
