//! Verifies with the API server that an actor is unchanged since the plan was made, before a step that cannot be
//! undone: while a watch is down, the store may lack `deletionPolicy: Retain`, or the annotation that keeps the queue.

use kube::Api;

use crate::context::Context;
use crate::fault::Error;
use crate::record::{ActorRecord, Projected};

/// Fails if the actor has changed. The next reconcile plans with the actor just read, even if the watch is still
/// behind.
pub(super) async fn verify_unchanged(
    context: &Context,
    planned: &ActorRecord,
) -> Result<(), Error> {
    let key = &planned.metadata.key;
    let api: Api<Projected<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let current = api.get_opt(&key.name).await.map_err(Error::Api)?;
    let is_unchanged = |current: &ActorRecord| {
        current.metadata.uid == planned.metadata.uid
            && current.metadata.deleting == planned.metadata.deleting
            && current.generation == planned.generation
            && current.annotations == planned.annotations
    };
    match current {
        Some(current) if is_unchanged(&current.record) => Ok(()),
        current => {
            if let Some(current) = &current {
                context.stores.actors.apply_response(current);
            }
            Err(Error::Stale("the actor"))
        }
    }
}
