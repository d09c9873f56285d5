//! Another autoscaler that scales the workload of an actor whose own scaling is off.

use crate::condition::ConditionValue;
use crate::fault::Reason;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::StandaloneOutcome;
use crate::record::AutoscalerTarget;
use crate::scaling::autoscalers::{Autoscalers, CompetingAutoscaler};
use crate::scaling::ready::ScalingReady;

/// Condition `ScalingReady`; `None` if there is no such autoscaler. The number of pods is left to that autoscaler,
/// because two writers would overwrite each other forever (SAFE-25).
pub(super) fn other_autoscaler_condition(
    observed: &Observed,
    outcome: &StandaloneOutcome,
) -> Option<ScalingReady> {
    let standalone = observed.standalone().filter(|it| it.scaling.is_none())?;
    let scaling = &observed.scaling;
    let name = &*observed.key().name;
    let autoscalers = Autoscalers {
        actor: name,
        scaled_object: scaling.scaled_object.ours().map(|it| &*it.metadata.uid),
        hpas: &scaling.hpas,
        scaled_objects: &scaling.scaled_objects,
    };
    let autoscaler =
        autoscalers.competing_autoscaler(&AutoscalerTarget::workload(standalone.kind, name))?;
    let workload = outcome.workload.as_ref()?;
    let kind = workload.kind.name();
    let stays_empty = workload.desired == 0 && matches!(autoscaler, CompetingAutoscaler::Hpa(_));
    let hint = if stays_empty {
        format!(
            ". It has no pods, and an HPA does not start the first one: scale {kind} {name} to at least 1"
        )
    } else {
        String::new()
    };
    let desired = observed.desired.as_ref().ok()?;
    let replicas = desired.spec.workload.as_ref().and_then(|it| it.replicas);
    let condition = match replicas {
        Some(replicas) => ConditionValue::new(
            false,
            Reason::RivalAutoscaler,
            format!(
                "{autoscaler} scales {kind} {name}, so spec.workload.replicas ({replicas}) has no effect; delete \
                 {autoscaler}, or remove spec.workload.replicas to leave the number of pods to it{hint}"
            ),
        ),
        None => ConditionValue::new(
            true,
            Reason::ScaledByOther,
            format!(
                "{autoscaler} scales {kind} {name}, and the operator leaves the number of pods to it; to change that, \
                 delete {autoscaler} and set spec.workload.replicas, or set spec.scaling.enabled to true{hint}"
            ),
        ),
    };
    Some(condition.into())
}
