//! Applies our annotations to foreign objects. Each apply lists everything its field manager owns on the object, and
//! nothing else.

use asya_shared::names::{annotation, manager};
use asya_shared::resolve::{ObjectRef, is_claimed};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::cluster::foreign::Apply;
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::model::rollout::Live;
use crate::reconcile::plan::roll::inputs::manager_of;
use crate::record::Key;

/// Path of the object's own annotations.
const OWN: [&str; 2] = ["metadata", "annotations"];
/// Autoscaler class of an `InferenceService` that is scaled externally (SO-5).
const EXTERNAL: &str = "external";

/// The annotations that an object should carry.
#[derive(Clone, Copy)]
pub(super) struct Ours<'a> {
    /// Value of the annotation that triggers a rollout.
    pub roll: Option<&'a str>,
    /// Whether to claim that the queue scales the object; `None` keeps the current claim.
    pub claim: Option<bool>,
    /// The object that carries the claim, if there is one.
    pub claim_owner: Option<&'a ObjectRef>,
}

/// Returns whether the object should carry our claim. A claim that is kept is read live: the observed object may predate
/// our last write.
pub(super) async fn claims(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    ours: Ours<'_>,
) -> Result<bool, Error> {
    if ours.claim.is_some() || ours.claim_owner != Some(object) {
        return Ok(ours.claim.unwrap_or(false));
    }
    let live = live(context, namespace, object).await?;
    Ok(live.is_some_and(|live| is_claimed(&live)))
}

/// Writes or gives up the claim while no rollout is due, and keeps the rollout annotation as it is (SO-5).
pub(super) async fn claim(
    context: &Context,
    namespace: &str,
    owner: &ObjectRef,
    is_made: bool,
) -> Result<(), StepError> {
    let Some(live) = live(context, namespace, owner).await? else {
        return Ok(());
    };
    let roll = Live::of(owner, &live, Some(&OWN)).value;
    let body = body(owner, &OWN, (roll.as_deref(), is_made));
    let applied = apply(context, namespace, owner, (manager::PARENT, &body)).await;
    applied.map_err(|error| StepError::of_write(&owner.to_string(), error))
}

/// Annotates the workload with the actor that binds it. The annotation is informational only, so a refusal or removal
/// is accepted (BIND-47).
pub(super) async fn mark(
    context: &Context,
    actor: &Key,
    workload: &ObjectRef,
) -> Result<(), Error> {
    let mut body = named(workload);
    body["metadata"]["annotations"][annotation::MANAGED_BY] = json!(actor.name);
    try_to_apply(context, &actor.namespace, workload, &body).await
}

/// Removes that annotation from a workload of an actor being deleted.
pub(super) async fn unmark(
    context: &Context,
    namespace: &str,
    workload: &ObjectRef,
) -> Result<(), Error> {
    try_to_apply(context, namespace, workload, &named(workload)).await
}

async fn try_to_apply(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    body: &Value,
) -> Result<(), Error> {
    let applied = apply(context, namespace, object, (manager::BINDING, body)).await;
    let refused = applied.map_err(|error| StepError::of_write(&object.to_string(), error));
    match refused {
        Err(StepError::Refused(fault)) => {
            debug!(
                fault.message,
                "the object does not name the actor that binds it"
            );
        }
        // Another field manager owns the annotation, or the object was deleted.
        Ok(()) | Err(StepError::Aborted(Error::Stale(_))) => {}
        Err(StepError::Aborted(error)) => return Err(error),
    }
    Ok(())
}

/// Gives up the rollout annotation on an object that no longer belongs to the target (SAFE-19).
pub(super) async fn release_roll(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
) -> Result<(), Error> {
    let manager = manager_of(object);
    let Err(error) = apply(context, namespace, object, (manager, &named(object))).await else {
        return Ok(());
    };
    let fault = StepError::of_write(&object.to_string(), error).fault()?;
    warn!(fault.message, "our annotation stays");
    Ok(())
}

/// Builds the apply body with the rollout annotation and the claim. A body without annotations gives up those we had.
pub(super) fn body(
    object: &ObjectRef,
    path: &[&str],
    (roll, claims): (Option<&str>, bool),
) -> Value {
    let mut body = named(object);
    if let Some(value) = roll {
        let mut at = &mut body;
        for key in path {
            at = &mut at[*key];
        }
        at[annotation::ROLL] = json!(value);
    }
    if claims {
        body["metadata"]["annotations"][annotation::AUTOSCALER_CLASS] = json!(EXTERNAL);
    }
    body
}

/// Applies `body` if that removes nothing but fields of ours (SAFE-41). Succeeds if the object no longer exists or its
/// kind is not served.
pub(super) async fn apply(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    (manager, body): (&str, &Value),
) -> Result<(), kube::Error> {
    let bindings = &context.bindings;
    let Some(resource) = bindings.resource_of(object) else {
        return Ok(());
    };
    let Some(live) = bindings.body(&context.client, namespace, object).await? else {
        return Ok(());
    };
    let apply = Apply {
        namespace,
        resource: &resource,
        manager,
        body,
    };
    let writer = context.applier.writer(namespace).await?;
    let written = async {
        apply.dry_run(&writer, &live).await?;
        apply.write(&writer).await
    };
    match written.await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

fn named(object: &ObjectRef) -> Value {
    json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "metadata": {"name": object.name, "uid": object.uid},
    })
}

async fn live(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
) -> Result<Option<Value>, Error> {
    let bindings = &context.bindings;
    let body = bindings.body(&context.client, namespace, object);
    body.await.map_err(Error::Api)
}
