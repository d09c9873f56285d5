//! Plans the steps for the target of a binding.

use asya_shared::resolve::{GroupKind, ObjectRef};
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::contention::FieldDecision;
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::autoscaler_handoff::{self, HandoffStep, plan_handoff};
use crate::reconcile::plan::decision::TargetSteps;
use crate::reconcile::plan::probe::PlannedProbe;
use crate::reconcile::plan::replicas::plan_replicas;
use crate::reconcile::plan::rollout::inputs::RolloutDecision;
use crate::reconcile::plan::scale_from_zero::plan_scale_from_zero;
use crate::reconcile::plan::scaled_object_contention::plan_scaled_object_contention;
use crate::reconcile::plan::steps::{ScalingRestriction, ScalingStep};
use crate::reconcile::plan::template::write::TemplateParams;
use crate::reconcile::plan::template::{TemplateStep, plan_template};

/// Plans the steps. Returns them with the step for scaling, as far as contention over its fields allows it.
pub(super) fn plan_target_steps(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    scaling: Option<ScalingStep>,
    rollout: Option<&RolloutDecision>,
    probe: &PlannedProbe,
    now: Timestamp,
) -> (TargetSteps, Option<ScalingStep>) {
    let contention = plan_scaled_object_contention(observed, history, scaling.as_ref(), now);
    let handoff = plan_handoff(observed, history, scaling.as_ref(), rollout, now);
    let restriction = scaling_restriction(observed, contention, handoff.as_ref());
    let scaling = scaling.map(|step| step.restricted_by(restriction));
    let template = plan_template(observed, history, now).unwrap_or_default();
    let steps = TargetSteps {
        scaled_object_contention: contention,
        replicas_contention: plan_replicas(observed, history, scaling.as_ref(), now),
        scale_from_zero: plan_scale_from_zero(observed, scaling.as_ref(), rollout, probe),
        template_params: match template {
            TemplateStep::Apply | TemplateStep::RecordConflict => {
                TemplateParams::new(observed, probe.params.replaced)
            }
            _ => None,
        },
        template,
        handoff,
        actor_annotation: plan_actor_annotation(observed),
    };
    (steps, scaling)
}

fn scaling_restriction(
    observed: &Observed,
    contention: Option<FieldDecision>,
    handoff: Option<&HandoffStep>,
) -> ScalingRestriction {
    let by_handoff = handoff.map(|step| autoscaler_handoff::scaling_restriction(observed, step));
    ScalingRestriction {
        keep_scaled_object: contention.is_some_and(FieldDecision::is_contested),
        ..by_handoff.unwrap_or_default()
    }
}

/// Annotates each workload once, even if the annotation is removed later. Limited to `Deployment`s and `StatefulSet`s,
/// because a custom resource may propagate annotations to its pods (BIND-47).
fn plan_actor_annotation(observed: &Observed) -> Option<ObjectRef> {
    let workload = &observed.resolved()?.target.workload;
    let GroupKind { group, kind } = workload.group_kind();
    let previous = observed.previous.resolved_target.as_ref();
    let is_known = previous.is_some_and(|target| target.uid == workload.uid);
    let is_supported = group == "apps" && matches!(kind, "Deployment" | "StatefulSet");
    (is_supported && !is_known).then(|| workload.clone())
}
