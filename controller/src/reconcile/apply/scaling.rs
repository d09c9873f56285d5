//! Reconciles KEDA's objects.

use super::child::{AppliedObject, apply_child, delete_child};
use crate::context::Context;
use crate::fault::{Error, Fault, StepError};
use crate::reconcile::model::outcome::CommonOutcome;
use crate::reconcile::plan::scaling_children::ScalingChildren;
use crate::reconcile::plan::steps::ScalingStep;

/// Ensures the `ConfigMap` that the `TriggerAuthentication` reads. Returns the fault that keeps KEDA from logging in.
pub(super) async fn ensure_config_map(
    context: &Context,
    children: &ScalingChildren,
) -> Result<Option<Fault>, Error> {
    let Some((key, desired)) = &children.config_map else {
        return Ok(None);
    };
    match context.config_maps.ensure(key, desired).await {
        Ok(_) => Ok(None),
        Err(failed) => failed.fault().map(Some),
    }
}

/// Executes the scaling step.
pub(super) async fn scale(
    context: &Context,
    step: ScalingStep,
    children: &ScalingChildren,
    config_map_fault: Option<Fault>,
    target_exists: bool,
    outcome: &mut CommonOutcome,
) -> Result<(), Error> {
    let plan = match step {
        ScalingStep::Disabled(teardown) => {
            outcome.keda_deadline = teardown.deadline;
            return remove(context, children).await;
        }
        ScalingStep::Blocked(..) => return remove(context, children).await,
        ScalingStep::Enabled(plan) => plan,
    };
    let fault = match plan.may_apply(config_map_fault, target_exists) {
        Ok(()) => match apply(context, children, outcome).await {
            Ok(()) => None,
            Err(failed) => Some(failed.fault()?),
        },
        Err(fault) => fault,
    };
    if let Some(scaled) = &mut outcome.scaling {
        scaled.fault = fault;
    }
    Ok(())
}

/// Applies the `TriggerAuthentication` before the `ScaledObject` that references it; an unreferenced one is deleted
/// last.
async fn apply(
    context: &Context,
    children: &ScalingChildren,
    outcome: &mut CommonOutcome,
) -> Result<(), StepError> {
    let authentications = &context.trigger_authentications;
    let authentication = &children.trigger_authentication;
    if let Some(applied) = apply_child(authentications, authentication).await? {
        outcome.applied.push(applied.entry);
    }
    let scaled_object = apply_child(&context.scaled_objects, &children.scaled_object).await?;
    if let Some(AppliedObject { record, entry }) = scaled_object {
        outcome.applied.push(entry);
        if let Some(scaled) = &mut outcome.scaling {
            scaled.scaled_object = Some(record);
        }
    }
    Ok(delete_child(authentications, authentication).await?)
}

/// Deletes our scaling objects as planned.
pub(super) async fn remove(context: &Context, children: &ScalingChildren) -> Result<(), Error> {
    delete_child(&context.scaled_objects, &children.scaled_object).await?;
    let authentications = &context.trigger_authentications;
    delete_child(authentications, &children.trigger_authentication).await
}
