//! Reconciles one actor: observe, plan, apply, status.

mod apply;
mod cache_sync;
mod contention;
mod deleted_binding;
mod desired;
mod injection;
mod model;
mod observe;
mod plan;
mod retries;
mod status;
#[cfg(test)]
pub(crate) mod tests;
pub mod work_item;

use asya_process::clock;
use cache_sync::requeue_until_synced;
use model::observed::Observed;
use model::outcome::{Outcome, QueueState};

use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::record::Key;
use crate::work_queue::Attempt;

pub use apply::shared;
pub use cache_sync::all_synced;
pub use contention::drift_restore::is_reported as is_drift_reported;
pub use contention::history::part_of;

/// Moves one actor a step closer to its spec. Returns when to requeue; `None` if the actor no longer exists
/// and nothing of it is left.
///
/// A fault of the actor, its workload or its broker is not an error but a state, reported in its conditions. On the
/// `last` attempt, a fault that will not be retried says so.
///
/// # Errors
/// When the API server fails, or this replica is no longer the leader.
pub async fn reconcile(
    context: &Context,
    key: &Key,
    attempt: Attempt,
) -> Result<Option<Requeue>, Error> {
    if let Some(requeue) = requeue_until_synced(context, key) {
        return Ok(Some(requeue));
    }
    let Some(mut observed) = observe::observe(context, key, clock::now()).await? else {
        let requeue = deleted_binding::remove_leftover_sidecar(context, key, clock::now()).await?;
        context.forget(key);
        return Ok(requeue);
    };
    remember_observed(context, &observed);
    let now = clock::now();
    let plan = plan::plan(&observed, now);
    if plan.is_final_step() {
        // Another finalizer may hold the actor for long after ours is removed, and no reconcile would report it then.
        status::report_deletion(context, &mut observed, now).await?;
    }
    let mut outcome = match apply::apply(context, &observed.actor, plan).await {
        // An empty status helps no one, so report the error whatever its cause (STA-7).
        Err(error)
            if retries::is_reported(&error, attempt.failures, observed.actor.metadata.deleting) =>
        {
            retries::outcome_of_error(&observed, error)?
        }
        applied => applied?,
    };
    remember_outcome(context, &observed, &outcome);
    retries::add_interruption(&mut outcome, attempt.failures);
    if attempt.last {
        retries::mark_retries_exhausted(&mut outcome);
    }
    // Read the clock again: a rollout starts a second after the status that enables injection, and dry runs take time
    // (ROLL-2).
    let requeue = status::report(context, &observed, &outcome, clock::now()).await?;
    match outcome.interrupted() {
        Some(error) => Err(error),
        None => Ok(Some(requeue)),
    }
}

/// Remembers what this reconcile has observed.
fn remember_observed(context: &Context, observed: &Observed) {
    let key = observed.key();
    let updates = &observed.memory_updates;
    if let Some(error) = &updates.broker_failure {
        context.queue_rechecks.record_failure(key, error);
    }
    for counted in &updates.depths {
        if counted.resets {
            context.depths.forget(key);
        }
        context.depths.record(key, Some(counted.depth));
    }
    let is_lost = observed.scaling.lost_for.is_some();
    context.lost_scaled_objects.record(key, is_lost);
    if let Some(workload) = observed.workload.ours() {
        context.creation_failures.record_workload(workload);
    }
}

/// Remembers what later reconciles should know of the outcome.
fn remember_outcome(context: &Context, observed: &Observed, outcome: &Outcome) {
    let key = observed.key();
    if let Some(taken) = outcome.has_foreign_child() {
        context.stores.foreign_names.record(key, taken);
    }
    // A message count means nothing for another queue or for a later actor of the same name.
    let forgets_depth = match outcome {
        Outcome::Finalized => true,
        Outcome::Active(active_outcome) => {
            let common = active_outcome.common();
            matches!(common.queue, QueueState::Created(_)) || common.serves_another_queue(observed)
        }
        Outcome::Deleting { .. }
        | Outcome::DeletionBlocked { .. }
        | Outcome::DeletionUnknown(_) => false,
    };
    if forgets_depth {
        context.depths.forget(key);
    }
    if matches!(outcome, Outcome::Finalized)
        && let Some(ended) = deleted_binding::to_remember(observed, clock::now())
    {
        context.deleted_bindings.record(key, ended);
    }
}
