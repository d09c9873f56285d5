//! Verifies with the API server what a plan assumed, before a step that cannot be undone: while a watch is down, the
//! store may lack `deletionPolicy: Retain`, the annotation that keeps the queue, or a pod with the actor's sidecar.

use std::collections::HashSet;
use std::sync::Arc;

use asya_shared::names::label;
use kube::Api;
use kube::api::ListParams;

use crate::context::Context;
use crate::fault::Error;
use crate::record::{ActorRecord, Key, PodRecord, Projected, UNFINISHED};

/// Fails if the actor has changed. The next reconcile plans with what was just read, even if the watch is still behind.
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

/// Fails if the actor has a pod that the plan did not know. The next reconcile plans with it.
pub(super) async fn verify_pods_known(
    context: &Context,
    actor: &Key,
    known: &[Arc<PodRecord>],
) -> Result<(), Error> {
    let api: Api<Projected<PodRecord>> = Api::namespaced(context.client.clone(), &actor.namespace);
    let params = ListParams::default()
        .labels(&format!("{}={}", label::ASYA, actor.name))
        .fields(UNFINISHED);
    let listed = api.list(&params).await.map_err(Error::Api)?;
    let known: HashSet<_> = known.iter().map(|pod| &pod.metadata.uid).collect();
    let unknown = |pod: &&Projected<PodRecord>| !known.contains(&pod.record.metadata.uid);
    let unknown: Vec<_> = listed.items.iter().filter(unknown).collect();
    for pod in &unknown {
        context.stores.pods.apply_response(pod);
    }
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(Error::Stale("the pods"))
    }
}
