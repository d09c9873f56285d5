//! Writes the status.

use asya_shared::api::{AsyncActorStatus, State};
use asya_shared::names::{GROUP, manager};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::deletion::{Blocked, deletion_status};
use super::legacy_fields;
use crate::context::Context;
use crate::fault::{Conflict, Error};
use crate::reconcile::model::observed::Observed;
use crate::record::{ActorRecord, Projected};

/// Reports the deletion before its last step if no status has reported it yet, because another finalizer may hold the
/// actor for long (FIN-2), and because nothing else may tell the next process that the actor is orphaned (FW-23 (g)).
///
/// # Errors
/// When the API server fails, or the actor has changed.
pub async fn report_deletion(
    context: &Context,
    observed: &mut Observed,
    now: Timestamp,
) -> Result<(), Error> {
    let previous = &observed.previous;
    let is_reported = previous.orphaned.is_some() || !observed.deletion.orphans;
    if previous.status == Some(State::Terminating) && is_reported {
        return Ok(());
    }
    let status = deletion_status(observed, &Blocked::default(), &[], false, now);
    match write(context, &observed.actor, &status).await {
        // An actor stored before the CRD had its validation rules may reject every write, and is deleted all the same.
        Err(Error::Api(kube::Error::Api(rejection))) if rejection.code == 422 => return Ok(()),
        written => written?,
    }
    observed.previous = status;
    Ok(())
}

/// The `resourceVersion` to send: the newest known of the same actor, because this reconcile may have changed it itself
/// since it was read (its finalizers, or the reported deletion). A spec that changed meanwhile triggers another
/// reconcile, and `observedGeneration` shows which spec the status describes. `None` if the actor is gone.
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
        Ok(response) => {
            context.stores.actors.apply_response(&response);
            context.unrecorded_queues.remove_recorded(key, status);
            remove_leftovers(context, &api, &response.record, status).await
        }
        Err(error) => ignore_not_found(error),
    }
}

/// Removes stored fields that were not just applied, because no one maintains them any more (WRK-7).
async fn remove_leftovers(
    context: &Context,
    api: &Api<Projected<ActorRecord>>,
    stored: &ActorRecord,
    status: &AsyncActorStatus,
) -> Result<(), Error> {
    let stored_status = stored.status.as_ref();
    let stored_status = stored_status.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let removal = stored_status
        .and_then(|stored_status| legacy_fields::removal_patch(&json!(status), &stored_status));
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
        Ok(response) => {
            context.stores.actors.apply_response(&response);
            Ok(())
        }
        Err(error) => ignore_not_found(error),
    }
}

fn ignore_not_found(error: kube::Error) -> Result<(), Error> {
    match error {
        kube::Error::Api(status) if status.is_not_found() => Ok(()),
        error if Conflict::of(&error).is_some() => Err(Error::Stale("the actor")),
        error => Err(Error::Api(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asya_shared::api::AsyncActorStatus;
    use serde_json::{Value, json};

    use super::{version_to_send, write};
    use crate::reconcile::tests::fixtures::{actor, record, recording_context, spec};
    use crate::record::{ActorRecord, Projected};

    /// A status never lands on another actor of the same name.
    #[test]
    fn status_is_sent_with_the_newest_version_of_the_same_actor() {
        let cached = |metadata: &Value| -> Arc<ActorRecord> {
            record(&actor(metadata, &spec(&json!({})), &json!({})))
        };
        let read = cached(&json!({}));
        let newer = cached(&json!({"resourceVersion": "9"}));
        let another = cached(&json!({"resourceVersion": "9", "uid": "another"}));
        assert_eq!(version_to_send(&read, Some(&newer)).as_deref(), Some("9"));
        assert_eq!(version_to_send(&read, Some(&another)), None);
        assert_eq!(version_to_send(&read, None), None);
    }

    /// The bodies of the writes of an empty status to a stored actor.
    async fn written(manifest: &Value) -> Vec<Value> {
        let (context, bodies) = recording_context(manifest.clone());
        let stored: Projected<ActorRecord> = serde_json::from_value(manifest.clone()).unwrap();
        context.stores.actors.apply_response(&stored);
        let read: Arc<ActorRecord> = record(manifest);
        let status = AsyncActorStatus::default();
        write(&context, &read, &status).await.unwrap();
        bodies.lock().clone()
    }

    #[tokio::test]
    async fn status_names_the_version_that_it_describes() {
        let manifest = actor(
            &json!({"resourceVersion": "9"}),
            &spec(&json!({})),
            &json!({}),
        );
        let bodies = written(&manifest).await;
        let version = bodies[0].pointer("/metadata/resourceVersion");
        assert_eq!(version, Some(&json!("9")));
    }

    /// WRK-7
    #[tokio::test]
    async fn stored_fields_that_nobody_maintains_are_removed() {
        let stored = json!({"status": "Running", "readySummary": "1/1"});
        let manifest = actor(&json!({}), &spec(&json!({})), &stored);
        let bodies = written(&manifest).await;
        assert_eq!(bodies[1]["status"]["readySummary"], Value::Null);
        assert!(
            bodies[1]["status"]
                .as_object()
                .unwrap()
                .contains_key("readySummary")
        );
    }
}
