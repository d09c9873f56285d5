//! Reconciles a binding: its queue, runtime script, injection, rollout and scaling.

use super::queue::ensure_queue;
use super::roll::roll;
use super::template::template;
use super::{claim, contention, parent, probe, scaling, wake};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::claim::Claiming;
use crate::reconcile::plan::decision::{Bind, ContestedFields};
use crate::reconcile::plan::order::template_is_due;
use crate::reconcile::plan::probe::{ProbeInputs, Probing};
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::roll::inputs::RollInputs;
use crate::reconcile::plan::wake::Waking;
use crate::record::{ActorRecord, Key};

/// Executes the plan of a live binding.
pub(super) async fn bind(
    context: &Context,
    actor: &ActorRecord,
    plan: Box<Bind>,
) -> Result<Ensured, Error> {
    let key = &actor.metadata.key;
    if plan.frees_slot {
        context.rollout_slots.forget(key);
    }
    let mut ensured = plan.before;
    let Some(desired) = &plan.desired else {
        return Ok(ensured);
    };
    let began = (plan.began, plan.recreates_queue);
    ensured.queue = ensure_queue(context, (actor, desired), plan.queue, began).await;
    let probing = (&plan.probe_inputs, plan.probe);
    let rolling = plan.roll.zip(plan.roll_inputs);
    if plan.done_once {
        probe_and_roll(context, actor, probing, (rolling, None), &mut ensured).await?;
        return Ok(ensured);
    }
    if let Some(workload) = &plan.mark {
        parent::mark(context, key, workload).await?;
    }
    let script = context.runtime.ensure(&context.config_maps, &key.namespace);
    match script.await {
        Ok(()) => {
            ensured.bindable = ensured.queue.is_usable();
            if template_is_due(&plan.template, &ensured) {
                let step = (plan.template, plan.template_inputs);
                ensured.templated = Box::new(template(context, key, step).await?);
            }
            if ensured.bindable {
                let writes = plan.claim.as_ref().and_then(Claiming::writes);
                let step = (rolling, writes);
                probe_and_roll(context, actor, probing, step, &mut ensured).await?;
            }
        }
        Err(refused) => ensured.fault = Some(refused.fault()?),
    }
    if let Some(step) = plan.scaling {
        let settings = scaling::ensure_settings(context, &plan.scaling_children).await?;
        let step = (step, &plan.scaling_children);
        let scaled = scaling::scale(context, step, (settings, true), &mut ensured).await;
        let decisions = (plan.contest, plan.replicas);
        match scaled {
            Ok(()) => {
                record_scaling(context, key, (&plan.contested, decisions), &mut ensured).await?;
            }
            Err(error) => ensured.interrupted = Some(Box::new(error)),
        }
    }
    if let Some(claiming) = plan.claim.filter(|_| ensured.bindable) {
        write_claim(context, key, (claiming, &plan.contested), &mut ensured).await?;
    }
    match &plan.wake {
        Some(Waking::Now(wake)) => {
            if let Err(refused) = wake::wake(context, &key.namespace, wake).await {
                let fault = refused.fault()?;
                ensured.fault = ensured.fault.or(Some(fault));
                ensured.asleep = true;
            }
        }
        Some(Waking::Later) => ensured.asleep = true,
        None => {}
    }
    Ok(ensured)
}

/// Makes the dry run that is due, and the rollout step that it allows.
async fn probe_and_roll(
    context: &Context,
    actor: &ActorRecord,
    (inputs, probing): (&ProbeInputs, Probing),
    (rolling, claim): (Option<(Rolling, RollInputs)>, Option<bool>),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let (rolling, roll_inputs) = rolling.unzip();
    let planned = (inputs, probing, rolling);
    let key = &actor.metadata.key;
    let probed = Box::pin(probe::probe(context, key, planned, ensured)).await?;
    let rolled = match (probed, roll_inputs) {
        (Some(Err(rolled)), _) => rolled,
        (Some(Ok(rolling)), Some(inputs)) => {
            let with_roll = claim.filter(|_| rolling != Rolling::Rest);
            roll(context, actor, (rolling, inputs), with_roll).await?
        }
        (None, _) | (_, None) => return Ok(()),
    };
    *ensured.rolled = rolled;
    Ok(())
}

/// Records contention over the `ScaledObject`, after scaling was reconciled, and over the target's replicas.
async fn record_scaling(
    context: &Context,
    actor: &Key,
    (fields, (scaled_object, replicas)): (
        &ContestedFields,
        (Option<FieldDecision>, Option<FieldDecision>),
    ),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let Some(decision) = scaled_object else {
        return Ok(());
    };
    let mut applied = ensured.applied.iter();
    let written = applied.any(|it| it.kind == "ScaledObject");
    let field = (&fields.scaled_object, decision, written);
    contention::record(context, actor, field, ensured).await?;
    if let Some((field, decision)) = fields.replicas.as_ref().zip(replicas) {
        contention::record(context, actor, (field, decision, false), ensured).await?;
    }
    Ok(())
}

/// Writes or gives up the claim, and records contention over it.
async fn write_claim(
    context: &Context,
    actor: &Key,
    (claiming, fields): (Claiming, &ContestedFields),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let field = &fields.claim;
    let written = match (claiming.writes(), field.owner()) {
        (Some(is_made), Some(owner)) => {
            claim::write(context, &actor.namespace, (owner, is_made), ensured).await?
        }
        _ => false,
    };
    match claiming {
        Claiming::GiveUp => Ok(()),
        Claiming::Wanted(decision) => {
            contention::record(context, actor, (field, decision, written), ensured).await
        }
    }
}
