//! Verifies with the API server what a plan assumed, before a step that cannot be undone: while a watch is down, the
//! store may lack `deletionPolicy: Retain`, the annotation that keeps the queue, or a pod that receives from it.

use asya_shared::names::label;
use kube::Api;
use kube::api::ListParams;

use crate::context::Context;
use crate::fault::Error;
use crate::record::{ActorRecord, PodRecord, Projected, UNFINISHED};

/// Fails if the actor has changed or has a pod that the plan did not know. The next reconcile plans with what was just
/// read, even if the watch is still behind.
pub(super) async fn verify_before_queue_deletion(
    context: &Context,
    planned: &ActorRecord,
) -> Result<(), Error> {
    verify_unchanged(context, planned).await?;
    verify_pods_known(context, planned).await
}

/// Fails if the actor has changed.
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

/// Fails if the actor has a pod that the store does not have.
async fn verify_pods_known(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let api: Api<Projected<PodRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = ListParams::default()
        .labels(&format!("{}={}", label::ASYA, key.name))
        .fields(UNFINISHED);
    let listed = api.list(&params).await.map_err(Error::Api)?;
    let pods = &context.stores.pods;
    let is_known = |pod: &Projected<PodRecord>| {
        let metadata = &pod.record.metadata;
        let known = pods.get(&metadata.key);
        known.is_some_and(|known| known.metadata.uid == metadata.uid)
    };
    let mut all_known = true;
    for pod in listed.items.iter().filter(|pod| !is_known(pod)) {
        pods.apply_response(pod);
        // Not stored if the watch has already reported its deletion.
        all_known &= !is_known(pod);
    }
    if all_known {
        Ok(())
    } else {
        Err(Error::Stale("the pods"))
    }
}
