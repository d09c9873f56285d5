//! Plans scaling of the workload of a standalone actor.

use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::scaling::{ScalingPlanInputs, plan_scaling, plan_teardown};
use crate::reconcile::plan::steps::{ScalingStep, WorkloadStep};
use crate::record::AutoscalerTarget;

/// `None` while the spec cannot be acted on.
pub(super) fn plan_scaling_step(
    observed: &Observed,
    workload: &WorkloadStep,
    now: Timestamp,
) -> Option<ScalingStep> {
    let standalone = observed.standalone()?;
    let keda = &observed.scaling;
    let Some(desired) = &standalone.scaling else {
        let teardown = plan_teardown(&keda.scaled_object, &keda.trigger_authentication, now);
        return Some(ScalingStep::Disabled(teardown));
    };
    let name = &*observed.key().name;
    Some(ScalingStep::Enabled(plan_scaling(&ScalingPlanInputs {
        actor: name,
        desired: desired.as_ref(),
        installed: keda.installed,
        target: &AutoscalerTarget::workload(standalone.kind, name),
        target_exists: *workload == WorkloadStep::Create
            || matches!(observed.workload, Child::Ours(_)),
        scaled_object: &keda.scaled_object,
        trigger_authentication: &keda.trigger_authentication,
        hpas: &keda.hpas,
        scaled_objects: &keda.scaled_objects,
        inventory: &observed.previous.inventory,
    })))
}
