//! Reconciles a binding: its runtime script, injection, rollout and scaling.

use asya_shared::config::SecretKeyRef;

use super::autoscaler_handoff::write_handoff;
use super::contention::{ScalingContention, record_scaling};
use super::probe::probe_and_roll_out;
use super::scale_from_zero::scale_up;
use super::template::template;
use super::{foreign_fields, scaling};
use crate::context::Context;
use crate::fault::{Error, Fault};
use crate::reconcile::desired::missing_secret_fault;
use crate::reconcile::model::outcome::{BindingOutcome, CommonOutcome, InterruptedStep};
use crate::reconcile::plan::autoscaler_handoff::HandoffStep;
use crate::reconcile::plan::contested_fields::ContestedFields;
use crate::reconcile::plan::decision::{BindingPlan, CommonPlan};
use crate::reconcile::plan::scale_from_zero::ScaleFromZeroStep;
use crate::reconcile::plan::step_conditions::{rolls_out, template_is_due};
use crate::record::{ActorRecord, Key};

/// Executes the plan of an active binding, from the `initial` outcome with the state of its queue.
pub(super) async fn apply_binding(
    context: &Context,
    actor: &ActorRecord,
    common: CommonPlan,
    plan: BindingPlan,
    initial: CommonOutcome,
) -> Result<BindingOutcome, Error> {
    let key = &actor.metadata.key;
    let mut outcome = BindingOutcome {
        common: initial,
        ..BindingOutcome::default()
    };
    if common.queue.is_none() {
        return Ok(outcome);
    }
    let target = plan.target;
    if !common.leaves_objects_alone {
        if let Some(workload) = &target.actor_annotation {
            foreign_fields::annotate_with_actor(context, key, workload).await?;
        }
        let has_script = prepare_injection(context, key, &plan.secrets_to_find, &mut outcome);
        if has_script.await? && template_is_due(&target.template, &outcome) {
            let params = target.template_params;
            outcome.template = template(context, key, target.template, params).await?;
        }
    }
    if rolls_out(common.leaves_objects_alone, &outcome) {
        let handoff = target.handoff.as_ref();
        let handoff = handoff.and_then(HandoffStep::change);
        probe_and_roll_out(
            context,
            actor,
            plan.probe,
            plan.rollout,
            handoff,
            &mut outcome,
        )
        .await?;
    }
    if common.leaves_objects_alone {
        return Ok(outcome);
    }
    let contention = ScalingContention {
        scaled_object: target.scaled_object_contention,
        replicas: target.replicas_contention,
    };
    scale(context, common, &plan.contested, contention, &mut outcome).await?;
    if let Some(handoff) = target.handoff.filter(|_| outcome.can_bind) {
        write_handoff(
            context,
            &key.namespace,
            handoff,
            &plan.contested,
            &mut outcome,
        )
        .await?;
    }
    scale_from_zero(context, key, target.scale_from_zero.as_ref(), &mut outcome).await?;
    Ok(outcome)
}

/// Ensures what pods with the sidecar need to start. Returns whether the runtime script exists.
async fn prepare_injection(
    context: &Context,
    key: &Key,
    secrets: &[SecretKeyRef],
    outcome: &mut BindingOutcome,
) -> Result<bool, Error> {
    let script = &context.runtime_script;
    let ensured = script.ensure(&context.config_maps, &key.namespace).await;
    if let Err(failed) = ensured {
        outcome.common.fault = Some(failed.fault()?);
        return Ok(false);
    }
    outcome.common.fault = missing_secret(context, key, secrets).await?;
    outcome.can_bind = outcome.common.fault.is_none() && outcome.common.queue.is_usable();
    Ok(true)
}

/// Executes the scaling step, and records contention over what it scales.
async fn scale(
    context: &Context,
    common: CommonPlan,
    contested: &ContestedFields,
    contention: ScalingContention,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    let Some(step) = common.scaling else {
        return Ok(());
    };
    let children = &common.scaling_children;
    let config_map = scaling::ensure_config_map(context, children).await?;
    let scaled = scaling::scale(
        context,
        step,
        children,
        config_map,
        true,
        &mut outcome.common,
    )
    .await;
    match scaled {
        Ok(()) => record_scaling(context, contested, contention, outcome).await,
        // The handoff and a scale-up do not depend on KEDA's objects.
        Err(error) => {
            let interruption = InterruptedStep::Scaling.by(error);
            outcome.common.interrupted = Some(Box::new(interruption));
            Ok(())
        }
    }
}

/// Scales up a target at zero replicas that no autoscaler scales any more.
async fn scale_from_zero(
    context: &Context,
    key: &Key,
    step: Option<&ScaleFromZeroStep>,
    outcome: &mut BindingOutcome,
) -> Result<(), Error> {
    match step {
        Some(ScaleFromZeroStep::Now(object)) => {
            if let Err(failed) = scale_up(context, &key.namespace, object).await {
                let fault = failed.fault()?;
                outcome.common.fault.get_or_insert(fault);
                outcome.awaits_scale_up = true;
            }
        }
        Some(ScaleFromZeroStep::Later) => outcome.awaits_scale_up = true,
        None => {}
    }
    Ok(())
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
