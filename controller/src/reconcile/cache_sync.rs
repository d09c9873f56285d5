//! Checks that caches are synced before an object that they lack counts as absent: namespaces may be added and kinds
//! installed while we lead.

use crate::context::Context;
use crate::fault::Requeue;
use crate::record::Key;

/// Requeue interval. Listing the actors of another namespace takes moments, unless it fails.
const UNSYNCED_RETRY: std::time::Duration = std::time::Duration::from_secs(1);

/// Returns when to requeue an actor whose caches are not synced; `None` if it can be reconciled.
pub(super) fn requeue_until_synced(context: &Context, key: &Key) -> Option<Requeue> {
    let actors = &context.stores.actors;
    let actor = actors.get(key)?;
    requeue_if_unsynced(
        all_synced(context, &key.namespace),
        actors.has_pending_lists(),
        actor.status_view.queue.is_some(),
    )
}

/// Returns whether all kinds of a namespace have been listed; until then, none of its actors is reconciled.
pub fn all_synced(context: &Context, namespace: &str) -> bool {
    let stores = &context.stores;
    let workloads = &context.workloads;
    stores.actors.is_synced(namespace)
        && stores.pods.is_synced(namespace)
        && stores.hpas.is_synced(namespace)
        && workloads.deployments.store.is_synced(namespace)
        && workloads.stateful_sets.store.is_synced(namespace)
        && context.service_accounts.store.is_synced(namespace)
        && context.config_maps.objects.store.is_synced(namespace)
}

/// Returns whether the caches of KEDA's objects are synced, so that an absent object does not exist.
pub(super) fn keda_is_synced(context: &Context, namespace: &str) -> bool {
    context.keda.is_installed()
        && context.scaled_objects.store.is_synced(namespace)
        && context.trigger_authentications.store.is_synced(namespace)
}

/// An actor with a queue proceeds while other namespaces are being listed, because no actor there can take its queue
/// (QUE-3).
fn requeue_if_unsynced(
    actors_synced: bool,
    awaits_others: bool,
    has_queue: bool,
) -> Option<Requeue> {
    match (actors_synced, awaits_others) {
        // The completed list enqueues its actors.
        (false, _) => Some(Requeue::AwaitChange),
        (true, true) if !has_queue => Some(Requeue::After(UNSYNCED_RETRY)),
        (true, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FW-13, QUE-3, KEDA-9
    #[test]
    fn actors_wait_until_their_caches_are_synced() {
        let rows = [
            (true, false, false, None),
            (true, true, true, None),
            (true, true, false, Some(Requeue::After(UNSYNCED_RETRY))),
            (false, false, true, Some(Requeue::AwaitChange)),
            (false, true, false, Some(Requeue::AwaitChange)),
        ];
        for (synced, others, queue, expected) in rows {
            let requeue = requeue_if_unsynced(synced, others, queue);
            assert_eq!(requeue, expected, "{synced} {others} {queue}");
        }
    }
}
