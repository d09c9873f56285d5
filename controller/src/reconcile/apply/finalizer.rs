//! Adds and removes our finalizer with JSON patches that test the list: a merge patch would drop a finalizer that
//! another controller adds at the same time.

use asya_shared::names::FINALIZER;
use json_patch::{Patch as JsonPatch, PatchOperation};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::patch::{add, is_failed_test, remove, test};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::plan::finalizers::FOREGROUND;
use crate::record::{ActorRecord, Projected};

/// Whether the actor still existed when it was patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Present,
    Gone,
}

/// Adds our finalizer to the actor. Nothing may be created for an actor that no longer exists, because nothing would
/// delete it again.
pub(super) async fn add_finalizer(
    context: &Context,
    actor: &ActorRecord,
) -> Result<Presence, Error> {
    let change = if actor.finalizers.is_empty() {
        vec![
            test(&["metadata", "finalizers"], Value::Null),
            add(&["metadata", "finalizers"], json!([FINALIZER])),
        ]
    } else {
        vec![
            test(&["metadata", "finalizers"], json!(actor.finalizers)),
            add(&["metadata", "finalizers", "-"], json!(FINALIZER)),
        ]
    };
    patch_finalizers(context, actor, change).await
}

/// Removes our finalizer, the last step of a deletion.
pub(super) async fn remove_finalizer(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    take_off(context, actor, FINALIZER).await
}

/// Removes the garbage collector's finalizer from the actor, so that objects recreated to drain the remaining messages
/// stay. We delete our objects ourselves before we remove our own finalizer.
pub(super) async fn end_foreground(context: &Context, actor: &ActorRecord) -> Result<(), Error> {
    take_off(context, actor, FOREGROUND).await
}

async fn take_off(context: &Context, actor: &ActorRecord, finalizer: &str) -> Result<(), Error> {
    let mut all = actor.finalizers.iter();
    let Some(index) = all.position(|it| &**it == finalizer) else {
        return Ok(());
    };
    let change = vec![
        test(&["metadata", "finalizers"], json!(actor.finalizers)),
        remove(&["metadata", "finalizers", &index.to_string()]),
    ];
    patch_finalizers(context, actor, change).await.map(drop)
}

async fn patch_finalizers(
    context: &Context,
    actor: &ActorRecord,
    change: Vec<PatchOperation>,
) -> Result<Presence, Error> {
    let key = &actor.metadata.key;
    let mut operations = vec![test(&["metadata", "uid"], json!(actor.metadata.uid))];
    operations.extend(change);
    let api: Api<Projected<ActorRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch = Patch::<()>::Json(JsonPatch(operations));
    match api.patch(&key.name, &PatchParams::default(), &patch).await {
        Ok(seen) => {
            context.stores.actors.wrote(&seen);
            Ok(Presence::Present)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Presence::Gone),
        Err(kube::Error::Api(status)) if is_failed_test(&status) => Err(Error::Stale("the actor")),
        Err(error) => Err(Error::Api(error)),
    }
}
