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

use super::model::observed::Observed;
use super::plan::decision::Plan;
use super::plan::finalizers::Finalizers;
use super::plan::order::checks_retired;
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::reconcile::model::outcome::Outcome;
use finalizer::{Presence, patch_finalizers};

pub use child::APPLIED;
#[cfg(test)]
pub use child::entry;

/// Executes `plan`.
///
/// # Errors
/// When the API server fails in a way that is not attributable to the actor.
pub async fn apply(
    context: &Context,
    observed: &Observed,
    mut plan: Plan,
) -> Result<Outcome, Error> {
    let actor = &*observed.actor;
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
    match plan {
        Plan::Rest(outcome) => {
            // Nothing is rolled out for this actor, so it must not hold a rollout slot.
            context.rollout_slots.forget(&actor.metadata.key);
            Ok(Outcome::Ensured(*outcome))
        }
        Plan::Ensure(mut plan) => {
            let retired = std::mem::take(&mut plan.retired);
            let mut ensured = ensure::ensure(context, actor, plan).await?;
            // Runs last because a broker that is no longer used may be slow.
            if checks_retired(&ensured) {
                ensured.retired = Box::new(retired::check(context, actor, retired).await?);
            }
            Ok(Outcome::Ensured(ensured))
        }
        Plan::Bind(plan) => bind::bind(context, actor, plan).await,
        Plan::Confirm(wait) => Ok(Outcome::Deleting {
            fault: None,
            deleted: Vec::new(),
            retry: Requeue::After(wait),
            released: false,
        }),
        Plan::Delete(plan) => delete::delete(context, actor, plan).await,
    }
}

#[cfg(test)]
mod tests;
