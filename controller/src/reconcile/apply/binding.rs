//! Reconciles a binding: its runtime script, injection, rollout and scaling.

use asya_shared::config::SecretKeyRef;

use super::autoscaler_handoff::write_handoff;
use super::contention::record_scaling;
use super::probe::probe_and_roll_out;
use super::template::template;
use super::{foreign_fields, scale_from_zero, scaling};
use crate::context::Context;
use crate::fault::{Error, Fault};
use crate::reconcile::desired::missing_secret_fault;
use crate::reconcile::model::outcome::{ActiveOutcome, Interruption, QueueState};
use crate::reconcile::plan::autoscaler_handoff::HandoffStep;
use crate::reconcile::plan::decision::BindingPlan;
use crate::reconcile::plan::scale_from_zero::ScaleFromZeroStep;
use crate::reconcile::plan::step_conditions::{
    is_bindable, rolls_out, template_is_due, writes_handoff,
};
use crate::record::{ActorRecord, Key};

/// Executes the plan of an active binding whose queue is in this state.
pub(super) async fn apply_binding(
    context: &Context,
    actor: &ActorRecord,
    plan: Box<BindingPlan>,
    queue: QueueState,
) -> Result<ActiveOutcome, Error> {
    let key = &actor.metadata.key;
    let mut active_outcome = plan.initial;
    if plan.queue.is_none() {
        return Ok(active_outcome);
    }
    active_outcome.queue = queue;
    let target = plan.target;
    if !plan.leaves_objects_alone {
        if let Some(workload) = &target.actor_annotation {
            foreign_fields::annotate_with_actor(context, key, workload).await?;
        }
        let script = &context.runtime_script;
        let script = script.ensure(&context.config_maps, &key.namespace).await;
        match script {
            Ok(()) => {
                active_outcome.fault = missing_secret(context, key, &plan.secrets_to_find).await?;
                active_outcome.can_bind =
                    active_outcome.fault.is_none() && is_bindable(&active_outcome.queue);
                if template_is_due(&target.template, &active_outcome) {
                    let (step, params) = (target.template, target.template_params);
                    active_outcome.template = Box::new(template(context, key, step, params).await?);
                }
            }
            Err(failed) => active_outcome.fault = Some(failed.fault()?),
        }
    }
    if rolls_out(plan.leaves_objects_alone, &active_outcome) {
        let handoff = target.handoff.as_ref();
        let handoff = handoff.and_then(HandoffStep::value_to_write);
        let (params, step, rollout) = (&plan.probe.params, plan.probe.step, plan.rollout);
        let outcome = &mut active_outcome;
        probe_and_roll_out(context, actor, params, step, rollout, handoff, outcome).await?;
    }
    if plan.leaves_objects_alone {
        return Ok(active_outcome);
    }
    if let Some(step) = plan.scaling {
        let config_map = scaling::ensure_config_map(context, &plan.scaling_children).await?;
        let (children, outcome) = (&plan.scaling_children, &mut active_outcome);
        let scaled = scaling::scale(context, step, children, config_map, true, outcome).await;
        match scaled {
            Ok(()) => {
                let (fields, scaled_object) = (&plan.contested, target.scaled_object_contention);
                let replicas = target.replicas_contention;
                record_scaling(context, fields, scaled_object, replicas, outcome).await?;
            }
            // The handoff and a scale-up do not depend on KEDA's objects.
            Err(error) => {
                let interruption = Interruption::of_scaling(error);
                active_outcome.interrupted = Some(Box::new(interruption));
            }
        }
    }
    if let Some(handoff) = target.handoff.filter(|_| writes_handoff(&active_outcome)) {
        let (namespace, fields) = (&key.namespace, &plan.contested);
        write_handoff(context, namespace, handoff, fields, &mut active_outcome).await?;
    }
    match &target.scale_from_zero {
        Some(ScaleFromZeroStep::Now(scale_up)) => {
            let scaled = scale_from_zero::scale_up(context, &key.namespace, scale_up).await;
            if let Err(failed) = scaled {
                let fault = failed.fault()?;
                active_outcome.fault = active_outcome.fault.or(Some(fault));
                active_outcome.awaits_scale_up = true;
            }
        }
        Some(ScaleFromZeroStep::Later) => active_outcome.awaits_scale_up = true,
        None => {}
    }
    Ok(active_outcome)
}

/// Why a pod of the target's namespace could not start with the sidecar (SAFE-42).
async fn missing_secret(
    context: &Context,
    key: &Key,
    secrets: &[SecretKeyRef],
) -> Result<Option<Fault>, Error> {
    let namespace = &key.namespace;
    let missing = context.brokers.missing_secret(namespace, secrets).await;
    let missing = missing.map_err(Error::Api)?;
    Ok(missing.map(|secret| missing_secret_fault(namespace, secret)))
}
