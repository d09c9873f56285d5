//! Plans a binding: an actor whose workload another controller manages.

mod scaling;

use asya_shared::resolve::{GroupKind, ObjectRef};
use k8s_openapi::jiff::Timestamp;
use scaling::plan_scaling_step;

use super::autoscaler_handoff::{handoff_of, plan_handoff};
use super::decision::{BindingPlan, ContestedFields, Plan};
use super::finalizers::plan_finalizers;
use super::probe::{ProbeParams, plan_probe};
use super::queue::plan_queue;
use super::replicas::plan_replicas;
use super::retired;
use super::rollout::params::{PlannedRollout, RolloutParams};
use super::rollout::plan_rollout;
use super::scale_from_zero::{self, plan_scale_from_zero};
use super::scaled_object_contention::{ContestedField, plan_scaled_object_contention};
use super::scaling_children::ScalingChildren;
use super::steps::ScalingStep;
use super::template::write::TemplateParams;
use super::template::{TemplateStep, plan_template};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::model::observed::{Observed, is_reconcile_once_done};
use crate::reconcile::model::outcome::ActiveOutcome;

/// Plans an active binding.
pub(super) fn plan_binding(observed: &Observed, now: Timestamp) -> Plan {
    let mut scaling = plan_scaling_step(observed, now);
    if observed.actor.annotations.paused {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        return Plan::Paused(Box::new(ActiveOutcome {
            scaling_by_queue: scale_from_zero::by_queue(observed, scaling.as_ref()),
            ..ActiveOutcome::initial(observed, fault)
        }));
    }
    let history = observed.contention_history();
    let history = history.as_ref();
    let rollout = plan_rollout(observed, history, now).map(|decision| PlannedRollout {
        params: RolloutParams::new(observed, &decision, now),
        decision,
    });
    let leaves_objects_alone = is_reconcile_once_done(&observed.actor, &observed.previous);
    let mut plan = if leaves_objects_alone {
        BindingPlan {
            leaves_objects_alone: true,
            rollout: rollout.filter(|it| !it.decision.replaces_pods()),
            ..BindingPlan::only(observed, scaling)
        }
    } else {
        let contention = plan_scaled_object_contention(observed, history, scaling.as_mut(), now);
        let decision = rollout.as_ref().map(|it| &it.decision);
        let handoff = plan_handoff(observed, history, scaling.as_mut(), decision, now);
        BindingPlan {
            retired: retired::plan_check(observed),
            scaled_object_contention: contention,
            replicas_contention: plan_replicas(observed, history, scaling.as_ref(), now),
            scale_from_zero: plan_scale_from_zero(observed, scaling.as_ref(), decision),
            template: plan_template(observed, history, now).unwrap_or_default(),
            handoff,
            actor_annotation: plan_actor_annotation(observed),
            rollout,
            ..BindingPlan::only(observed, scaling)
        }
    };
    // Known only now: the handoff may have set a fault.
    plan.initial.scaling_by_queue = scale_from_zero::by_queue(observed, plan.scaling.as_ref());
    plan.add_params(observed);
    Plan::Binding(Box::new(plan))
}

impl BindingPlan {
    /// Plans only finalizers, queue, scaling and the dry run; the caller adds the other steps.
    fn only(observed: &Observed, scaling: Option<ScalingStep>) -> Self {
        let fault = scaling.as_ref().and_then(ScalingStep::fault);
        let mut initial = ActiveOutcome::initial(observed, fault);
        if let Some(scaled) = &mut initial.scaling {
            scaled.waits_for = scaling.as_ref().and_then(ScalingStep::waits_for);
        }
        Self {
            initial,
            finalizers: plan_finalizers(observed),
            leaves_objects_alone: false,
            queue: plan_queue(observed),
            scaling_children: ScalingChildren::new(observed, scaling.as_ref()),
            scaling,
            contested: ContestedFields {
                scaled_object_key: observed.key().clone(),
                revision: SpecRevision::default(),
                scaled_object: ContestedField::ScaledObject(None),
                replicas: None,
                handoff: ContestedField::Handoff(ObjectRef::default()),
            },
            scaled_object_contention: None,
            replicas_contention: None,
            scale_from_zero: None,
            template: TemplateStep::default(),
            template_params: None,
            handoff: None,
            actor_annotation: None,
            probe: plan_probe(observed),
            probe_params: ProbeParams::new(observed),
            rollout: None,
            frees_slot: false,
            retired: retired::RetiredCheck::default(),
        }
    }

    /// Adds the parameters of the decided steps.
    fn add_params(&mut self, observed: &Observed) {
        if matches!(
            self.template,
            TemplateStep::Apply | TemplateStep::RecordConflict
        ) {
            self.template_params = TemplateParams::new(observed);
        }
        self.frees_slot = self.rollout.is_none() && target_is_known(observed);
        let resolved = observed.resolved();
        self.contested = ContestedFields {
            scaled_object_key: observed.key().clone(),
            revision: resolved
                .map(|it| it.revision(observed.actor.generation))
                .unwrap_or_default(),
            scaled_object: ContestedField::scaled_object(
                observed,
                self.scaled_object_contention.as_ref(),
            ),
            replicas: resolved
                .map(|resolved| ContestedField::Replicas(resolved.target.workload.clone())),
            handoff: ContestedField::Handoff(
                handoff_of(observed).map_or_else(ObjectRef::default, |it| it.owner.clone()),
            ),
        };
    }
}

/// Whether the target was resolved, or is not needed. If so, no planned rollout means that none is in progress.
fn target_is_known(observed: &Observed) -> bool {
    let target = observed.binding.as_ref().and_then(|it| it.target.as_ref());
    target.is_some() || observed.desired.is_err()
}

/// Annotates each workload once, even if the annotation is removed later. Only a `Deployment` or `StatefulSet`, because
/// a custom resource may propagate annotations to its pods (BIND-47).
fn plan_actor_annotation(observed: &Observed) -> Option<ObjectRef> {
    let workload = &observed.resolved()?.target.workload;
    let GroupKind { group, kind } = workload.group_kind();
    let previous = observed.previous.resolved_target.as_ref();
    let is_known = previous.is_some_and(|target| target.uid == workload.uid);
    let is_supported = group == "apps" && matches!(kind, "Deployment" | "StatefulSet");
    (is_supported && !is_known).then(|| workload.clone())
}

#[cfg(test)]
mod tests;
