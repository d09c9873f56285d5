//! Removes the sidecar from pods that got it after the actor of their binding was gone, because a webhook replica did
//! not know that yet (BIND-43).

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tracing::info;

use super::apply::evict::evict;
use super::model::observed::Observed;
use super::model::outcome::RolloutOutcome;
use super::{observe, plan};
use crate::binding::deleted::DeletedBinding;
use crate::context::Context;
use crate::fault::{Error, Requeue};
use crate::record::Key;

/// Requeue interval while pods have the sidecar: their evictions wait for other pods, whose events do not enqueue an
/// actor that is gone.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The binding to remember now that its actor is gone; `None` if its pods may keep the sidecar.
pub(super) fn to_remember(observed: &Observed, now: Timestamp) -> Option<DeletedBinding> {
    let unbinding = observed.unbinding()?;
    let target = unbinding.target.as_ref().filter(|_| !unbinding.skip)?;
    Some(DeletedBinding {
        actor_uid: observed.actor.metadata.uid.clone(),
        target: (**target).clone(),
        deleted_at: now,
    })
}

/// Evicts the next pod with the sidecar of an actor that is gone. Returns when to check again; `None` once no pod has
/// it.
///
/// # Errors
/// When the API server fails.
pub(super) async fn remove_leftover_sidecar(
    context: &Context,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Requeue>, Error> {
    let Some((deleted, last_eviction)) = context.deleted_bindings.get(key, now) else {
        return Ok(None);
    };
    let Some(unbinding) = observe::unbinding::observe_leftover(context, key, &deleted).await?
    else {
        return Ok(None);
    };
    let next = plan::unbind::leftover_eviction(&unbinding, &deleted.actor_uid, last_eviction, now);
    let availability = unbinding.availability.unwrap_or_default();
    if let Some(pod) = next
        && let RolloutOutcome::Requested(_) = evict(context, key, &pod, &availability).await?
    {
        context.deleted_bindings.record_eviction(key, now);
        info!(pod = %pod.name, "evicted: it got the sidecar when the actor was already deleted");
    }
    Ok(Some(Requeue::After(RECHECK_INTERVAL)))
}
