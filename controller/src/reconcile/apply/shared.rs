//! Cleans up the `ConfigMap`s shared by the actors of a namespace when an actor is deleted (RUN-2, SAFE-33).

use asya_shared::names::{is_shared_config_map, label};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tracing::info;

use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::plan::deletion::{Deletion, SharedConfigMaps};
use crate::record::{ActorRecord, Key};

/// Excludes terminated pods, which never mount anything again.
const LIVE: &str = "status.phase!=Failed,status.phase!=Succeeded";

/// Deletes the shared `ConfigMap`s with the last actor of the namespace, unless remaining pods mount them (RUN-2).
pub(super) async fn release(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let others = lives_another(context, key);
    let mut fate = plan.shared_config_maps(others, false);
    // Pods are listed only if they decide.
    if fate == SharedConfigMaps::Delete && has_shared(context, &key.namespace) {
        let own = plan.own_pods.then_some(&*key.name);
        let mounted = is_mounted(&context.client, &key.namespace, own).await?;
        fate = plan.shared_config_maps(others, mounted);
    }
    settle(context, &key.namespace, fate).await
}

/// Deletes the shared `ConfigMap`s of a namespace without actors once no pod can mount them. Returns whether they were
/// deleted.
///
/// # Errors
/// When the API server fails.
pub async fn sweep(context: &Context, namespace: &str) -> Result<bool, Error> {
    if is_mounted(&context.client, namespace, None).await? {
        return Ok(false);
    }
    // An actor created in the meantime needs them.
    if !context.stores.actors.keys_in(namespace).is_empty() {
        return Ok(false);
    }
    settle(context, namespace, SharedConfigMaps::Delete).await?;
    info!(
        namespace,
        "shared ConfigMaps are removed: no pod mounts them any more"
    );
    Ok(true)
}

/// Returns whether the watches show `ConfigMap`s that are deleted with the last actor.
pub fn has_shared(context: &Context, namespace: &str) -> bool {
    let store = &context.config_maps.objects.store;
    let mut left = store.keys_in(namespace).into_iter();
    left.any(|key| {
        is_shared_config_map(&key.name)
            && !context.runtime.is_at_home(&key)
            && store.get(&key).is_some_and(|it| !it.orphaned)
    })
}

async fn settle(context: &Context, namespace: &str, fate: SharedConfigMaps) -> Result<(), Error> {
    if fate == SharedConfigMaps::Keep {
        return Ok(());
    }
    let labelled = context.config_maps.objects.store.keys_in(namespace);
    for shared in labelled
        .into_iter()
        .filter(|key| is_shared_config_map(&key.name))
    {
        if fate == SharedConfigMaps::Orphan {
            context.config_maps.orphan(&shared).await?;
        } else if !context.runtime.is_at_home(&shared) {
            context.config_maps.remove(&shared).await?;
        }
    }
    Ok(())
}

/// Actors being deleted do not count unless they still work; otherwise none of several deleted at once would be the
/// last.
fn lives_another(context: &Context, key: &Key) -> bool {
    let actors = &context.stores.actors;
    let stays = |other: &Key| {
        let actor = actors.get(other).filter(|_| other != key);
        actor.is_some_and(|actor| actor.works())
    };
    actors.keys_in(&key.namespace).iter().any(stays)
}

/// Returns whether a live pod of an actor other than `but` may mount them. Asks the API server rather than a cache,
/// because a pod whose `ConfigMap` is missing never starts.
async fn is_mounted(client: &Client, namespace: &str, but: Option<&str>) -> Result<bool, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = match but {
        Some(name) => format!("{0},{0}!={name}", label::ASYA),
        None => label::ASYA.to_owned(),
    };
    let mut params = ListParams::default()
        .labels(&selector)
        .fields(LIVE)
        .limit(100);
    loop {
        let found = pods.list_metadata(&params).await.map_err(Error::Api)?;
        let live =
            |pod: &kube::api::PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.is_none();
        if found.items.iter().any(live) {
            return Ok(true);
        }
        match found.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(false),
        }
    }
}
