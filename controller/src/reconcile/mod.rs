//! One pass over one actor: observe, plan, apply, report.

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

/// An API server that fails so often in a row is told in the status of the actor that it keeps from its children.
const TOLD_AFTER: u32 = 2;

/// Whether what ended a pass is told. What may pass by itself has to last first; who may not delete a child of an actor
/// that goes learns that at once.
fn is_told(error: &Error, failures: u32, deleting: bool) -> bool {
    failures >= TOLD_AFTER || (deleting && error.retry() == Requeue::SlowBackoff)
}

/// Brings one actor a step closer to what it asks for. Answers when to look again; `None` when it is gone.
///
/// A fault of the actor, its workload or its broker is a state, told in its conditions. After the `last`
/// attempt a fault that was not tried again would stay: it says so.
///
/// # Errors
/// When nothing could be told either: the API server does not answer, or we no longer lead.
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
        // A status that stays empty helps nobody, whosever fault it is (STA-7).
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
    let retry = status::report(context, &observed, &outcome, now).await?;
    match outcome.interrupted() {
        Some(error) => Err(error),
        None => Ok(Some(retry)),
    }
}
