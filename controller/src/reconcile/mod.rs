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

use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::record::Key;
use crate::work_queue::Attempt;

pub use apply::shared;
pub use contention::history::part_of;

/// Consecutive API server failures after which they are reported in the actor's status.
const TOLD_AFTER: u32 = 2;

/// Returns whether the error that ended a reconcile is reported in the status. A transient error must persist first; a
/// refused deletion of a child is reported at once.
fn is_told(error: &Error, failures: u32, deleting: bool) -> bool {
    failures >= TOLD_AFTER || (deleting && error.retry() == Requeue::SlowBackoff)
}

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
    let now = Timestamp::now();
    let plan = plan::plan(&observed, now);
    if plan.is_the_end() {
        status::announce_end(context, &mut observed, now).await?;
    }
    let mut outcome = match apply::apply(context, &observed, plan).await {
        // An empty status helps no one, so report the error whatever its cause (STA-7).
        Err(error) if is_told(&error, attempt.failures, observed.actor.metadata.deleting) => {
            apply::interrupted(&observed, error)?
        }
        applied => applied?,
    };
    if let Some(met) = outcome.met_stranger() {
        context.stores.foreign_names.saw(key, met);
    }
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
