//! Adds and removes finalizers of the actor.

use json_patch::Patch as JsonPatch;
use kube::Api;
use kube::api::{Patch, PatchParams};

use crate::cluster::patch::is_failed_test;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::plan::finalizers::FinalizerPatch;
use crate::record::{ActorRecord, Projected};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchOutcome {
    Patched,
    /// The actor no longer exists.
    ActorGone,
}

pub(super) async fn patch_finalizers(
    context: &Context,
    patch: FinalizerPatch,
) -> Result<PatchOutcome, Error> {
    let FinalizerPatch { actor, operations } = patch;
    let api: Api<Projected<ActorRecord>> =
        Api::namespaced(context.client.clone(), &actor.namespace);
    let patch = Patch::<()>::Json(JsonPatch(operations));
    match api
        .patch(&actor.name, &PatchParams::default(), &patch)
        .await
    {
        Ok(response) => {
            context.stores.actors.apply_response(&response);
            Ok(PatchOutcome::Patched)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(PatchOutcome::ActorGone),
        Err(kube::Error::Api(status)) if is_failed_test(&status) => Err(Error::Stale("the actor")),
        Err(error) => Err(Error::Api(error)),
    }
}
