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

/// The `resourceVersion` to send: the newest known of the same actor, because this reconcile may have changed it itself
/// since it was read (its finalizers, or the announcement of its end). A spec that changed meanwhile triggers another
/// reconcile, and `observedGeneration` tells which one the status is about. `None` if the actor is gone.
fn version_to_send(read: &ActorRecord, newest: Option<&ActorRecord>) -> Option<String> {
    let newest = newest.filter(|newest| newest.metadata.uid == read.metadata.uid)?;
    Some(newest.metadata.resource_version.to_string())
}

pub(super) async fn write(
    context: &Context,
    actor: &ActorRecord,
    status: &AsyncActorStatus,
) -> Result<(), Error> {
    let key = &actor.metadata.key;
    let api: Api<Projected<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let newest = context.stores.actors.get(key);
    let Some(version) = version_to_send(actor, newest.as_deref()) else {
        return Err(Error::Stale("the actor"));
    };
    let body = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "AsyncActor",
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "resourceVersion": version},
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::version_to_send;
    use crate::reconcile::tests::fixtures::{actor, record, spec};
    use crate::record::ActorRecord;

    /// A status never lands on another actor of the same name.
    #[test]
    fn status_is_sent_with_the_newest_version_of_the_same_actor() {
        let known = |metadata: &Value| -> Arc<ActorRecord> {
            record(&actor(metadata, &spec(&json!({})), &json!({})))
        };
        let read = known(&json!({}));
        let newer = known(&json!({"resourceVersion": "9"}));
        let another = known(&json!({"resourceVersion": "9", "uid": "another"}));
        assert_eq!(version_to_send(&read, Some(&newer)).as_deref(), Some("9"));
        assert_eq!(version_to_send(&read, Some(&another)), None);
        assert_eq!(version_to_send(&read, None), None);
    }
}
