//! Plans scaling of the target of a binding.

use k8s_openapi::jiff::Timestamp;

use crate::fault::Reason;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::ScalingWait;
use crate::reconcile::plan::autoscaler_handoff::{evaluate, handoff_of};
use crate::reconcile::plan::scaling::{ScalingPlanInputs, plan_scaling, plan_teardown};
use crate::reconcile::plan::scaling_start::scaling_start_blocker;
use crate::reconcile::plan::steps::ScalingStep;

/// Plans scaling of the object that the target resolves to, as long as it exists (SO-1).
pub(super) fn plan_scaling_step(observed: &Observed, now: Timestamp) -> Option<ScalingStep> {
    let binding = observed.binding.as_ref()?;
    let is_usable = !target_is_unusable(binding);
    let handoff = evaluate(observed, handoff_of(observed));
    let blocked_by = scaling_start_blocker(observed, binding);
    let keda = &observed.scaling;
    let teardown = || plan_teardown(&keda.scaled_object, &keda.trigger_authentication, now);
    if !observed.desired_binding()?.scales || !is_usable {
        return Some(ScalingStep::Disabled(teardown()));
    }
    let scaling = match binding.resolved()?.scaling.as_ref()? {
        Ok(scaling) => scaling,
        Err(fault) => return Some(ScalingStep::Blocked(teardown(), fault.clone())),
    };
    if let Some(fault) = handoff.fault {
        return Some(ScalingStep::Blocked(teardown(), fault));
    }
    let mut plan = plan_scaling(&ScalingPlanInputs {
        actor: &observed.key().name,
        desired: scaling.objects.as_ref(),
        installed: keda.installed,
        target: &scaling.target,
        target_exists: !handoff.is_pending && blocked_by.is_none(),
        scaled_object: &keda.scaled_object,
        trigger_authentication: &keda.trigger_authentication,
        hpas: &handoff.other_hpas,
        scaled_objects: &keda.scaled_objects,
        inventory: &observed.previous.inventory,
    });
    plan.waits_for = blocked_by
        .filter(|_| plan.fault.is_none())
        .map(ScalingWait::Sidecar);
    Some(ScalingStep::Enabled(plan))
}

/// Whether the target is known to be deleted, unsupported or bound by another actor, so that a `ScaledObject` would do
/// harm. A target that merely cannot be read keeps its `ScaledObject` (BIND-42).
fn target_is_unusable(binding: &ObservedBinding) -> bool {
    binding.target_fault().is_some_and(|fault| {
        matches!(
            fault.reason,
            Reason::TargetNotFound
                | Reason::TargetStopped
                | Reason::KindNotInstalled
                | Reason::AlreadyBound
                | Reason::UnsupportedTarget
                | Reason::CrossNamespace
                | Reason::NamespaceExcluded
        )
    })
}
