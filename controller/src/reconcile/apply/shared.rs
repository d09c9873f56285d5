//! Cleans up the `ConfigMap`s shared by the actors of a namespace when an actor is deleted (RUN-2, SAFE-33).
//!
//! Selects them here, and not in *plan*: other actors of the namespace may be created or deleted at the same time. The
//! script in the operator's own namespace is the source of all others and always stays.

use asya_shared::names::{is_shared_config_map, label};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tracing::info;

use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::plan::deletion::{Deletion, SharedConfigMapAction};
use crate::record::{ActorRecord, UNFINISHED};

/// Deletes the shared `ConfigMap`s with the last actor of the namespace, unless remaining pods mount them (RUN-2).
pub(super) async fn clean_up(
    context: &Context,
    actor: &ActorRecord,
    plan: &Deletion,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    // Others that are being deleted do not count; otherwise none of several deleted at once would be the last.
    let others = context.stores.actors.has_other_active(key);
    let mut action = plan.shared_config_maps(others, false);
    // List pods only if they affect the decision.
    if action == SharedConfigMapAction::Delete && has_shared(context, &key.namespace) {
        let except = plan.ignores_workload_pods.then_some(&*key.name);
        let mounted = is_mounted(&context.client, &key.namespace, except).await?;
        action = plan.shared_config_maps(others, mounted);
    }
    apply_action(context, &key.namespace, action).await
}

/// Deletes the shared `ConfigMap`s of a namespace without actors once no pod can mount them. No plan decides, because
/// there is no actor left to plan for. Returns whether they were deleted.
///
/// # Errors
/// When the API server fails.
pub async fn sweep(context: &Context, namespace: &str) -> Result<bool, Error> {
    if is_mounted(&context.client, namespace, None).await? {
        return Ok(false);
    }
    // An actor that was created in the meantime needs them.
    if !context.stores.actors.keys_in(namespace).is_empty() {
        return Ok(false);
    }
    apply_action(context, namespace, SharedConfigMapAction::Delete).await?;
    info!(
        namespace,
        "removed shared ConfigMaps: no pod mounts them any more"
    );
    Ok(true)
}

/// Whether the cache has `ConfigMap`s that are deleted with the last actor.
pub fn has_shared(context: &Context, namespace: &str) -> bool {
    let store = &context.config_maps.objects.store;
    let mut keys = store.keys_in(namespace).into_iter();
    keys.any(|key| {
        is_shared_config_map(&key.name)
            && !context.runtime_script.is_permanent(&key)
            && store.get(&key).is_some_and(|it| !it.orphaned)
    })
}

async fn apply_action(
    context: &Context,
    namespace: &str,
    action: SharedConfigMapAction,
) -> Result<(), Error> {
    if action == SharedConfigMapAction::Keep {
        return Ok(());
    }
    let labelled = context.config_maps.objects.store.keys_in(namespace);
    for shared in labelled
        .into_iter()
        .filter(|key| is_shared_config_map(&key.name))
    {
        if action == SharedConfigMapAction::Orphan {
            context.config_maps.orphan(&shared).await?;
        } else if !context.runtime_script.is_permanent(&shared) {
            context.config_maps.remove(&shared).await?;
        }
    }
    Ok(())
}

/// Whether a pod that has not finished, of an actor other than `except`, may mount the shared `ConfigMap`s. Queries the
/// API server instead of a cache, because a pod whose `ConfigMap` is missing never starts.
async fn is_mounted(client: &Client, namespace: &str, except: Option<&str>) -> Result<bool, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = match except {
        Some(name) => format!("{0},{0}!={name}", label::ASYA),
        None => label::ASYA.to_owned(),
    };
    let mut params = ListParams::default()
        .labels(&selector)
        .fields(UNFINISHED)
        .limit(100);
    loop {
        let page = pods.list_metadata(&params).await.map_err(Error::Api)?;
        let remains =
            |pod: &kube::api::PartialObjectMeta<Pod>| pod.metadata.deletion_timestamp.is_none();
        if page.items.iter().any(remains) {
            return Ok(true);
        }
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(false),
        }
    }
}
