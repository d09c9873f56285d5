//! Reconciles KEDA's objects.

use asya_shared::scaling::trigger_authentication_name;

use super::child::{apply_child, delete_child, entry_of};
use crate::context::Context;
use crate::fault::{Error, Fault};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::scaling::{Removal, ScalingPlan};
use crate::reconcile::plan::steps::ScalingStep;
use crate::record::Key;

/// Ensures the `ConfigMap` that the `TriggerAuthentication` reads.
pub(super) async fn ensure_settings(
    context: &Context,
    observed: &Observed,
) -> Result<Result<(), Fault>, Error> {
    let Some(Ok(objects)) = observed.scaling_objects() else {
        return Ok(Ok(()));
    };
    let wanted = objects
        .config_map
        .as_ref()
        .filter(|_| observed.scaling.installed);
    let Some(wanted) = wanted else {
        return Ok(Ok(()));
    };
    let key = Key::new(&observed.key().namespace, wanted.name());
    let ensured = context.config_maps.ensure(&key, wanted);
    Ok(ensured.await?.map(drop))
}

/// Executes the plan once there is something to scale. `fault` is what keeps KEDA from logging in.
pub(super) async fn scale(
    context: &Context,
    observed: &Observed,
    (step, fault): (ScalingStep, Option<Fault>),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let plan = match step {
        ScalingStep::Unwanted(removal) => {
            ensured.released_by = removal.until;
            return remove(context, observed, &removal).await;
        }
        ScalingStep::Refused(removal, _) => return remove(context, observed, &removal).await,
        ScalingStep::Wanted(plan) => plan,
    };
    let mut fault = plan.fault.clone().or(fault);
    let is_there = ensured.workload.is_some() || observed.binding.is_some();
    if fault.is_none() && is_there {
        let applied = apply(context, observed, &plan, ensured).await?;
        fault = applied.err();
    }
    if let Some(scaled) = &mut ensured.scaling {
        scaled.fault = fault;
    }
    Ok(())
}

/// Applies the `TriggerAuthentication` before the `ScaledObject` that references it; an unreferenced one is deleted
/// last.
async fn apply(
    context: &Context,
    observed: &Observed,
    plan: &ScalingPlan,
    ensured: &mut Ensured,
) -> Result<Result<(), Fault>, Error> {
    let Some(Ok(objects)) = observed.scaling_objects() else {
        return Ok(Ok(()));
    };
    let (name, seen) = (authentication(observed), &observed.scaling);
    let authentications = &context.trigger_authentications;
    if let Some(wanted) = &objects.trigger_authentication {
        let step = (&plan.trigger_authentication, wanted);
        let found = (authentications, &seen.trigger_authentication);
        let applied = apply_child(observed, found, &name, step);
        match applied.await? {
            Ok(Some(record)) => ensured.applied.push(entry_of(&*record, wanted)),
            Ok(None) => {}
            Err(fault) => return Ok(Err(fault)),
        }
    }
    let wanted = &objects.scaled_object;
    let found = (&context.scaled_objects, &seen.scaled_object);
    let applied = apply_child(
        observed,
        found,
        observed.key(),
        (&plan.scaled_object, wanted),
    );
    match applied.await? {
        Ok(Some(record)) => {
            ensured.applied.push(entry_of(&*record, wanted));
            if let Some(scaled) = &mut ensured.scaling {
                scaled.scaled_object = Some(record);
            }
        }
        Ok(None) => {}
        Err(fault) => return Ok(Err(fault)),
    }
    delete_child(authentications, &name, &plan.trigger_authentication).await?;
    Ok(Ok(()))
}

/// Deletes our scaling objects, as far as the plan says.
pub(super) async fn remove(
    context: &Context,
    observed: &Observed,
    removal: &Removal,
) -> Result<(), Error> {
    delete_child(
        &context.scaled_objects,
        observed.key(),
        &removal.scaled_object,
    )
    .await?;
    let name = authentication(observed);
    let authentications = &context.trigger_authentications;
    delete_child(authentications, &name, &removal.trigger_authentication).await
}

/// Removes our owner reference from the scaling objects, which outlive the actor (FW-23).
pub(super) async fn orphan(context: &Context, observed: &Observed) -> Result<(), Error> {
    let (seen, actor) = (&observed.scaling, &observed.actor.metadata.uid);
    if let Some(found) = seen.scaled_object.ours() {
        let (key, uid) = (&found.metadata.key, &found.metadata.uid);
        context.scaled_objects.orphan(key, uid, actor).await?;
    }
    if let Some(found) = seen.trigger_authentication.ours() {
        let (key, uid) = (&found.metadata.key, &found.metadata.uid);
        let authentications = &context.trigger_authentications;
        authentications.orphan(key, uid, actor).await?;
    }
    Ok(())
}

fn authentication(observed: &Observed) -> Key {
    let Key { namespace, name } = observed.key();
    Key::new(namespace, &trigger_authentication_name(name))
}
