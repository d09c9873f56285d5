//! The write of a status.

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
use crate::record::{ActorRecord, Seen};

/// Tells that an actor goes before the last thing of it does, if nobody could know so far: another finalizer may hold
/// it for long (FIN-2).
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
        // One that was stored before the CRD had its rules may not be written at all, and goes all the same.
        Err(Error::Api(kube::Error::Api(refusal))) if refusal.code == 422 => return Ok(()),
        written => written?,
    }
    observed.previous = status;
    Ok(())
}

/// The version is sent along: what was read is what is reported on.
pub(super) async fn write(
    context: &Context,
    actor: &ActorRecord,
    status: &AsyncActorStatus,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let api: Api<Seen<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
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

/// What stands beside what was just applied is nobody's any more (WRK-7).
async fn remove_leftovers(
    context: &Context,
    api: &Api<Seen<ActorRecord>>,
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
