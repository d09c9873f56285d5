//! Executes the writes of a plan in order. A rejected write blocks only the steps that depend on it.

mod actor_queues;
mod autoscaler_handoff;
mod binding;
mod child;
mod contention;
mod delete;
pub mod evict;
mod finalizer;
mod foreign_fields;
mod left_pods;
mod messages;
mod probe;
mod queue;
mod remove_queue;
mod retired;
mod rollout;
mod scale_from_zero;
mod scaling;
pub mod shared;
mod standalone;
mod stop;
mod template;
mod unbind;
mod verify_unchanged;
mod workload;

use super::plan::decision::{ActivePlan, ModePlan, Plan};
use super::plan::finalizers::Finalizers;
use super::plan::step_conditions::checks_retired;
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::reconcile::model::outcome::{ActiveOutcome, CommonOutcome, Outcome, QueueState};
use crate::record::ActorRecord;
use finalizer::{PatchOutcome, patch_finalizers};
use queue::ensure_queue;

#[cfg(test)]
pub use child::inventory_entry;

/// Executes `plan`.
///
/// # Errors
/// When the API server fails in a way that is not the actor's fault.
pub async fn apply(context: &Context, actor: &ActorRecord, plan: Plan) -> Result<Outcome, Error> {
    match plan {
        Plan::Paused(outcome) => {
            context.rollout_slots.forget(&actor.metadata.key);
            Ok(Outcome::Active(*outcome))
        }
        Plan::Active(plan) => Box::pin(apply_active(context, actor, *plan)).await,
        Plan::AwaitEmpty(wait) => Ok(Outcome::Deleting {
            fault: None,
            deleted: Vec::new(),
            requeue: Requeue::After(wait),
            changed_target: false,
        }),
        Plan::Delete(plan) => delete::delete(context, actor, plan).await,
    }
}

async fn apply_active(
    context: &Context,
    actor: &ActorRecord,
    plan: ActivePlan,
) -> Result<Outcome, Error> {
    match plan.finalizers {
        Finalizers::Keep => {}
        Finalizers::Add(patch) | Finalizers::RemoveForeground(patch) => {
            if patch_finalizers(context, patch).await? == PatchOutcome::ActorGone {
                return Ok(Outcome::Finalized);
            }
        }
    }
    if plan.frees_slot {
        context.rollout_slots.forget(&actor.metadata.key);
    }
    let queue = match &plan.common.queue {
        Some(queue) => ensure_queue(context, actor, queue).await,
        None => QueueState::NotChecked,
    };
    let common = plan.common;
    let initial = CommonOutcome {
        queue,
        ..plan.initial
    };
    let mut outcome: ActiveOutcome = match plan.mode {
        ModePlan::Standalone(plan) => {
            let applied = standalone::apply_standalone(context, actor, common, *plan, initial);
            applied.await?.into()
        }
        ModePlan::Binding(plan) => {
            let applied = binding::apply_binding(context, actor, common, *plan, initial);
            applied.await?.into()
        }
    };
    // Last, because a broker that is no longer used may be slow.
    if checks_retired(&outcome) {
        outcome.common_mut().retired = retired::check(context, actor, plan.retired).await?;
    }
    Ok(Outcome::Active(outcome))
}

#[cfg(test)]
mod tests;
