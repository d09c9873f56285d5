//! Reconciles a binding: its runtime script, injection, rollout and scaling.

use super::autoscaler_handoff::write_handoff;
use super::contention::record_scaling;
use super::probe::probe_and_roll_out;
use super::template::template;
use super::{foreign_fields, scale_from_zero, scaling};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::outcome::{ActiveOutcome, QueueState};
use crate::reconcile::plan::autoscaler_handoff::HandoffStep;
use crate::reconcile::plan::decision::Bind;
use crate::reconcile::plan::order::template_is_due;
use crate::reconcile::plan::scale_from_zero::ScaleFromZeroStep;
use crate::record::ActorRecord;

/// Executes the plan of an active binding whose queue is in this state.
pub(super) async fn bind(
    context: &Context,
    actor: &ActorRecord,
    plan: Box<Bind>,
    queue: QueueState,
) -> Result<ActiveOutcome, Error> {
    let key = &actor.metadata.key;
    let mut active_outcome = plan.initial;
    if plan.queue.is_none() {
        return Ok(active_outcome);
    }
    active_outcome.queue = queue;
    if !plan.once_completed {
        if let Some(workload) = &plan.actor_annotation {
            foreign_fields::annotate_with_actor(context, key, workload).await?;
        }
        let script = &context.runtime_script;
        let script = script.ensure(&context.config_maps, &key.namespace).await;
        match script {
            Ok(()) => {
                active_outcome.bindable = active_outcome.queue.is_usable();
                if template_is_due(&plan.template, &active_outcome) {
                    let step = (plan.template, plan.template_params);
                    active_outcome.template = Box::new(template(context, key, step).await?);
                }
            }
            Err(failed) => active_outcome.fault = Some(failed.fault()?),
        }
    }
    if plan.once_completed || active_outcome.bindable {
        let probe_step = (&plan.probe_params, plan.probe);
        let handoff = plan.handoff.as_ref().and_then(HandoffStep::value_to_write);
        let step = (plan.rollout.zip(plan.rollout_params), handoff);
        probe_and_roll_out(context, actor, probe_step, step, &mut active_outcome).await?;
    }
    if plan.once_completed {
        return Ok(active_outcome);
    }
    if let Some(step) = plan.scaling {
        let config_map = scaling::ensure_config_map(context, &plan.scaling_children).await?;
        let step = (step, &plan.scaling_children);
        let scaled = scaling::scale(context, step, (config_map, true), &mut active_outcome).await;
        let decisions = (plan.scaled_object_contention, plan.replicas_contention);
        match scaled {
            Ok(()) => {
                let contested = (&plan.contested, decisions);
                record_scaling(context, contested, &mut active_outcome).await?;
            }
            Err(error) => active_outcome.interrupted = Some(Box::new(error)),
        }
    }
    if let Some(handoff) = plan.handoff.filter(|_| active_outcome.bindable) {
        let handoff = (handoff, &plan.contested);
        write_handoff(context, &key.namespace, handoff, &mut active_outcome).await?;
    }
    match &plan.scale_from_zero {
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
