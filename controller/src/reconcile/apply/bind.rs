//! Reconciles a binding: its queue, runtime script, injection, rollout and scaling.

use super::queue::ensure_queue;
use super::roll::roll;
use super::template::template;
use super::{claim, contest, parent, probe, retired, scaling, wake};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, Outcome};
use crate::reconcile::plan::claim::Claiming;
use crate::reconcile::plan::decision::Bind;
use crate::reconcile::plan::probe::Probing;
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::wake::Waking;

/// Executes the plan of a live binding.
pub(super) async fn bind(
    context: &Context,
    observed: &Observed,
    plan: Bind,
) -> Result<Outcome, Error> {
    if plan.roll.is_none() && is_known(observed) {
        context.rollout_slots.forget(observed.key());
    }
    let mut ensured = plan.before;
    let Some(desired) = &plan.desired else {
        return Ok(Outcome::Ensured(ensured));
    };
    let actor = &*observed.actor;
    let began = (plan.began, plan.recreates_queue);
    ensured.queue = ensure_queue(context, (actor, desired), plan.queue, began).await;
    if plan.done_once {
        let planned = (plan.probe, plan.roll);
        probe_and_roll(context, observed, planned, None, &mut ensured).await?;
        return Ok(Outcome::Ensured(ensured));
    }
    if let Some(workload) = &plan.mark {
        parent::mark(context, observed, workload).await?;
    }
    let namespace = &observed.key().namespace;
    match context
        .runtime
        .ensure(&context.config_maps, namespace)
        .await
    {
        Ok(()) => {
            ensured.bindable = ensured.queue.is_usable();
            if ensured.bindable || plan.template.gives_up() {
                let templated = template(context, observed, plan.template).await?;
                ensured.templated = Box::new(templated);
            }
            if ensured.bindable {
                let writes = plan.claim.as_ref().and_then(Claiming::writes);
                let planned = (plan.probe, plan.roll);
                probe_and_roll(context, observed, planned, writes, &mut ensured).await?;
            }
        }
        Err(refused) => ensured.fault = Some(refused.fault()?),
    }
    if let Some(step) = plan.scaling {
        let settings = scaling::ensure_settings(context, &plan.scaling_children).await?;
        let step = (step, &plan.scaling_children);
        let scaled = scaling::scale(context, step, (settings, true), &mut ensured).await;
        if let Err(error) = scaled {
            ensured.interrupted = Some(Box::new(error));
        } else if let Some(contest) = plan.contest {
            contest::book(context, observed, contest, &mut ensured).await?;
            if let Some(replicas) = plan.replicas {
                contest::book_replicas(context, observed, replicas, &mut ensured).await?;
            }
        }
    }
    if let Some(claiming) = plan.claim.filter(|_| ensured.bindable) {
        claim::claim(context, observed, claiming, &mut ensured).await?;
    }
    match &plan.wake {
        Some(Waking::Now(wake)) => {
            if let Err(refused) = wake::wake(context, namespace, wake).await {
                let fault = refused.fault()?;
                ensured.fault = ensured.fault.or(Some(fault));
                ensured.asleep = true;
            }
        }
        Some(Waking::Later) => ensured.asleep = true,
        None => {}
    }
    // Runs last because a broker that is no longer used may be slow.
    if ensured.fault.is_none() && ensured.bindable && ensured.interrupted.is_none() {
        ensured.retired = Box::new(retired::check(context, actor, plan.retired).await?);
    }
    Ok(Outcome::Ensured(ensured))
}

/// Makes the dry run that is due, and the rollout step that it allows.
async fn probe_and_roll(
    context: &Context,
    observed: &Observed,
    planned: (Probing, Option<Rolling>),
    claim: Option<bool>,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let probed = Box::pin(probe::probe(context, observed, planned, ensured)).await?;
    let rolled = match probed {
        None => return Ok(()),
        Some(Err(rolled)) => rolled,
        Some(Ok(rolling)) => {
            let with_roll = claim.filter(|_| rolling != Rolling::Rest);
            roll(context, observed, (rolling, with_roll)).await?
        }
    };
    *ensured.rolled = rolled;
    Ok(())
}

/// Returns whether the target was looked up, or need not be. If so, a rollout that is not planned is over.
fn is_known(observed: &Observed) -> bool {
    let target = observed.binding.as_ref().and_then(|it| it.target.as_ref());
    target.is_some() || observed.desired.is_err()
}
