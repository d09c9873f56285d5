//! Confirms with the API server that an actor still is as planned for, before a step that cannot be undone: while a watch
//! is down the store may lack `deletionPolicy: Retain`, or the annotation that keeps the queue.

use kube::Api;

use crate::context::Context;
use crate::fault::Error;
use crate::record::{ActorRecord, Projected};

/// Fails if the actor has changed. The next reconcile plans with what was just read, even if the watch is still behind.
pub(super) async fn confirm(context: &Context, known: &ActorRecord) -> Result<(), Error> {
    let key = &known.metadata.key;
    let api: Api<Projected<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let live = api.get_opt(&key.name).await.map_err(Error::Api)?;
    let is_known = |live: &ActorRecord| {
        live.metadata.uid == known.metadata.uid
            && live.metadata.deleting == known.metadata.deleting
            && live.generation == known.generation
            && live.annotations == known.annotations
    };
    match live {
        Some(live) if is_known(&live.record) => Ok(()),
        live => {
            if let Some(live) = &live {
                context.stores.actors.wrote(live);
            }
            Err(Error::Stale("the actor"))
        }
    }
}
