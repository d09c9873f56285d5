//! Writes the status.

use asya_shared::api::{AsyncActorStatus, State};
use asya_shared::names::{GROUP, manager};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::deletion::{Blocked, of_deletion};
use super::leftovers;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::observed::Observed;
use crate::record::{ActorRecord, Projected};

/// Reports the deletion before its last step if no status has reported it yet, because another finalizer may hold the
/// actor for long (FIN-2).
///
/// # Errors
/// When the API server fails, or the actor has changed.
pub async fn announce_end(
    context: &Context,
    observed: &mut Observed,
    now: Timestamp,
) -> Result<(), Error> {
    if observed.previous.status == Some(State::Terminating) {
        return Ok(());
    }
    let status = of_deletion(observed, &Blocked::default(), &[], false, now);
    match write(context, &observed.actor, &status).await {
        // An actor stored before the CRD had its validation rules may reject every write, and is deleted all the same.
        Err(Error::Api(kube::Error::Api(refusal))) if refusal.code == 422 => return Ok(()),
        written => written?,
    }
    observed.previous = status;
    Ok(())
}

/// Sends the `resourceVersion`, so that the status describes the version that was read.
pub(super) async fn write(
    context: &Context,
    actor: &ActorRecord,
    status: &AsyncActorStatus,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let api: Api<Projected<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let newest = context
        .stores
        .actors
        .get(key)
        .filter(|newest| newest.metadata.uid == actor.metadata.uid);
    let Some(newest) = newest else {
        return Err(Error::Stale("the actor"));
    };
    let version = newest.metadata.resource_version;
    let body = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "AsyncActor",
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "resourceVersion": version.to_string()},
        "status": status,
    });
    let params = PatchParams::apply(manager::STATUS).force();
    match api
        .patch_status(&key.name, &params, &Patch::Apply(&body))
        .await
    {
        Ok(seen) => {
            context.stores.actors.wrote(&seen);
            remove_leftovers(context, &api, &seen.record, status).await
        }
        Err(error) => unless_gone(error),
    }
}

/// Removes stored fields that were not just applied, because no one maintains them any more (WRK-7).
async fn remove_leftovers(
    context: &Context,
    api: &Api<Projected<ActorRecord>>,
    stored: &ActorRecord,
    status: &AsyncActorStatus,
) -> Result<(), Error> {
    let stands = stored.status.as_ref();
    let stands = stands.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let removal = stands.and_then(|stands| leftovers::removal(&json!(status), &stands));
    let Some(removal) = removal else {
        return Ok(());
    };
    let version = stored.metadata.resource_version.to_string();
    let patch = json!({"metadata": {"resourceVersion": version}, "status": removal});
    let params = PatchParams {
        field_manager: Some(manager::STATUS.to_owned()),
        ..PatchParams::default()
    };
    let name = &stored.metadata.key.name;
    match api.patch_status(name, &params, &Patch::Merge(&patch)).await {
        Ok(seen) => {
            context.stores.actors.wrote(&seen);
            Ok(())
        }
        Err(error) => unless_gone(error),
    }
}

fn unless_gone(error: kube::Error) -> Result<(), Error> {
    match error {
        kube::Error::Api(status) if status.is_not_found() => Ok(()),
        kube::Error::Api(status) if status.is_conflict() => Err(Error::Stale("the actor")),
        error => Err(Error::Api(error)),
    }
}
