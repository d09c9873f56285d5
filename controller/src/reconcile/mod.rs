//! Reconciles one actor: observe, plan, apply, report.

mod apply;
mod cache_sync;
mod contention;
mod desired;
mod injection;
mod model;
mod observe;
mod plan;
mod retries;
mod state;
mod status;
#[cfg(test)]
pub(crate) mod tests;
pub mod work_item;

use k8s_openapi::jiff::Timestamp;
use model::observed::Observed;
use model::outcome::Outcome;

use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::record::Key;
use crate::work_queue::Attempt;

pub use apply::shared;
pub use contention::history::part_of;

/// Brings one actor a step closer to its spec. Returns when to requeue; `None` if the actor no longer exists.
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
    if let Some(retry) = context.is_blind(key) {
        return Ok(Some(retry));
    }
    let Some(mut observed) = observe::observe(context, key, Timestamp::now()).await? else {
        context.forget(key);
        return Ok(None);
    };
    learn(context, &observed);
    let now = Timestamp::now();
    let plan = plan::plan(&observed, now);
    if plan.is_the_end() {
        status::announce_end(context, &mut observed, now).await?;
    }
    let mut outcome = match apply::apply(context, &observed.actor, plan).await {
        // An empty status helps no one, so report the error whatever its cause (STA-7).
        Err(error)
            if retries::is_reported(&error, attempt.failures, observed.actor.metadata.deleting) =>
        {
            retries::interrupted(&observed, error)?
        }
        applied => applied?,
    };
    remember(context, &observed, &outcome);
    if attempt.last {
        retries::give_up(&mut outcome);
    }
    // A rollout waits a second from when the status opens the webhook's gate, and dry runs take time (ROLL-2).
    let retry = status::report(context, &observed, &outcome, Timestamp::now()).await?;
    match outcome.interrupted() {
        Some(error) => Err(error),
        None => Ok(Some(retry)),
    }
}

/// Remembers what was learned by observing.
fn learn(context: &Context, observed: &Observed) {
    let (key, learned) = (observed.key(), &observed.learned);
    if let Some(error) = &learned.unanswered {
        context.queue_rechecks.unanswered(key, error);
    }
    for (depth, anew) in &learned.depths {
        if *anew {
            context.depths.forget(key);
        }
        context.depths.take(key, Some(*depth));
    }
    if let Some(workload) = observed.workload.ours() {
        context.refusals.saw(workload);
    }
}

/// Remembers what later reconciles should know of the outcome.
fn remember(context: &Context, observed: &Observed, outcome: &Outcome) {
    let key = observed.key();
    if let Some(met) = outcome.met_stranger() {
        context.stores.foreign_names.saw(key, met);
    }
    // A count says nothing about another queue, nor about the next actor of that name.
    let forgets_depth = match outcome {
        Outcome::Gone => true,
        Outcome::Ensured(ensured) => ensured.serves_another_queue(observed),
        Outcome::Deleting { .. } | Outcome::Held { .. } | Outcome::Unknown(_) => false,
    };
    if forgets_depth {
        context.depths.forget(key);
    }
}
