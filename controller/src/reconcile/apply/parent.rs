//! Applies our annotations to foreign objects. Each apply lists everything its field manager owns on the object, and
//! nothing else.

use asya_shared::names::{annotation, manager};
use asya_shared::resolve::{ObjectRef, is_claimed};
use serde_json::{Value, json};
use tracing::{debug, warn};

use crate::cluster::foreign::Apply;
use crate::context::Context;
use crate::fault::{Error, Fault, refused};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::Live;

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
}

/// Returns whether the object should carry our claim.
pub(super) async fn claims(
    context: &Context,
    observed: &Observed,
    object: &ObjectRef,
    wanted: Option<bool>,
) -> Result<bool, Error> {
    let claim = observed.resolved().and_then(|it| it.target.scale.claim());
    if wanted.is_some() || claim.is_none_or(|it| it.owner != *object) {
        return Ok(wanted.unwrap_or(false));
    }
    // Read it live: the observed object may predate our last write.
    let live = live(context, observed, object).await?;
    Ok(live.is_some_and(|live| is_claimed(&live)))
}

/// Writes or gives up the claim while no rollout is due, and keeps the rollout annotation as it is (SO-5).
pub(super) async fn claim(
    context: &Context,
    observed: &Observed,
    is_made: bool,
) -> Result<Result<(), Fault>, Error> {
    let claim = observed.resolved().and_then(|it| it.target.scale.claim());
    let Some(owner) = claim.map(|it| &it.owner) else {
        return Ok(Ok(()));
    };
    let Some(live) = live(context, observed, owner).await? else {
        return Ok(Ok(()));
    };
    let roll = Live::of(owner, &live, Some(&OWN)).value;
    let body = annotated(owner, &OWN, (roll.as_deref(), is_made));
    match apply(context, observed, owner, (manager::PARENT, &body)).await {
        Ok(()) => Ok(Ok(())),
        Err(error) => refused(&owner.to_string(), error).map(Err),
    }
}

/// Annotates the workload with the actor that binds it. The annotation is informational only, so a refusal or removal
/// is accepted (BIND-47).
pub(super) async fn mark(
    context: &Context,
    observed: &Observed,
    workload: &ObjectRef,
) -> Result<(), Error> {
    let mut body = named(workload);
    body["metadata"]["annotations"][annotation::MANAGED_BY] = json!(observed.key().name);
    tell(context, observed, workload, &body).await
}

/// Removes that annotation from the workloads of an actor being deleted.
pub(super) async fn unmark(context: &Context, observed: &Observed) -> Result<(), Error> {
    let seen = observed.binding.as_ref();
    let live = seen.and_then(|it| it.unbinding.as_ref());
    let marked = live.into_iter().flat_map(|it| &it.live);
    for Live { object, .. } in marked.filter(|it| it.marked) {
        tell(context, observed, object, &named(object)).await?;
    }
    Ok(())
}

async fn tell(
    context: &Context,
    observed: &Observed,
    object: &ObjectRef,
    body: &Value,
) -> Result<(), Error> {
    let Err(error) = apply(context, observed, object, (manager::BINDING, body)).await else {
        return Ok(());
    };
    match refused(&object.to_string(), error) {
        Ok(fault) => debug!(fault.message, "who binds the object is not told on it"),
        // Another field manager owns the annotation, or the object was deleted.
        Err(Error::Stale(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Gives up the rollout annotation on an object that no longer belongs to the target (SAFE-19).
pub(super) async fn release_roll(
    context: &Context,
    observed: &Observed,
    object: &ObjectRef,
) -> Result<(), Error> {
    // Of the annotated objects, only workloads of group apps carry our annotation in their pod template, applied by a
    // separate field manager.
    let manager = if object.group_kind().group == "apps" {
        manager::ROLL
    } else {
        manager::PARENT
    };
    let Err(error) = apply(context, observed, object, (manager, &named(object))).await else {
        return Ok(());
    };
    let fault = refused(&object.to_string(), error)?;
    warn!(fault.message, "our annotation stays");
    Ok(())
}

/// Builds the apply body with the rollout annotation and the claim. A body without annotations gives up those we had.
pub(super) fn annotated(
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
    observed: &Observed,
    object: &ObjectRef,
    (manager, body): (&str, &Value),
) -> Result<(), kube::Error> {
    let (bindings, namespace) = (&context.bindings, &*observed.key().namespace);
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
    observed: &Observed,
    object: &ObjectRef,
) -> Result<Option<Value>, Error> {
    let (bindings, namespace) = (&context.bindings, &observed.key().namespace);
    let body = bindings.body(&context.client, namespace, object);
    body.await.map_err(Error::Api)
}
