//! Executes a plan's writes in order. A refused write blocks only the steps that depend on it.

mod bind;
mod child;
mod claim;
mod confirm;
mod contention;
mod delete;
mod ensure;
mod finalizer;
mod messages;
mod own_queues;
mod parent;
mod probe;
mod queue;
mod remove_queue;
mod restored;
mod retired;
mod rival;
mod roll;
mod scaling;
pub mod shared;
mod stop;
mod template;
mod template_probe;
mod unbind;
mod wake;
mod workload;

use super::plan::decision::Plan;
use super::plan::finalizers::Finalizers;
use super::plan::order::checks_retired;
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::reconcile::model::outcome::Outcome;
use crate::record::ActorRecord;
use finalizer::{Presence, patch_finalizers};

#[cfg(test)]
pub use child::entry;

/// Executes `plan`.
///
/// # Errors
/// When the API server fails in a way that is not attributable to the actor.
pub async fn apply(
    context: &Context,
    actor: &ActorRecord,
    mut plan: Plan,
) -> Result<Outcome, Error> {
    match plan.take_finalizers() {
        Finalizers::Keep => {}
        Finalizers::Add(patch) => {
            if patch_finalizers(context, patch).await? == Presence::Gone {
                return Ok(Outcome::Gone);
            }
        }
        Finalizers::EndForeground(patch) => {
            patch_finalizers(context, patch).await?;
        }
    }
    let retired = plan.take_retired();
    let mut outcome = match plan {
        Plan::Rest(outcome) => {
            // Nothing is rolled out for this actor, so it must not hold a rollout slot.
            context.rollout_slots.forget(&actor.metadata.key);
            Outcome::Ensured(*outcome)
        }
        Plan::Ensure(plan) => Outcome::Ensured(ensure::ensure(context, actor, plan).await?),
        Plan::Bind(plan) => Outcome::Ensured(bind::bind(context, actor, plan).await?),
        Plan::Confirm(wait) => Outcome::Deleting {
            fault: None,
            deleted: Vec::new(),
            retry: Requeue::After(wait),
            released: false,
        },
        Plan::Delete(plan) => delete::delete(context, actor, plan).await?,
    };
    // Runs last because a broker that is no longer used may be slow.
    if let (Outcome::Ensured(ensured), Some((retired, binds))) = (&mut outcome, retired)
        && checks_retired(ensured, binds)
    {
        *ensured.retired = retired::check(context, actor, retired).await?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests;
