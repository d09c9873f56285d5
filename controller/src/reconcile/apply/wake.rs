//! Scales up a target that nothing scales any more (SO-6).

use asya_shared::names::manager;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::binding::KindAvailability;
use crate::context::Context;
use crate::fault::StepError;
use crate::reconcile::plan::steps::Wake;
use crate::reconcile::plan::wake::is_asleep;

/// Writes nothing if the target already has replicas or no longer exists: only the live `/scale` tells, and the write
/// depends on its version.
pub(super) async fn wake(context: &Context, namespace: &str, wake: &Wake) -> Result<(), StepError> {
    let object = &wake.object;
    let kind = object.group_kind().into();
    let KindAvailability::Served(resource) = context.bindings.kinds.standing(&kind) else {
        return Ok(());
    };
    let refused = |error| StepError::of_write(&object.to_string(), error);
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, resource.as_ref());
    let scale = match api.get_scale(&object.name).await {
        Ok(scale) => scale,
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        Err(error) => return Err(refused(error)),
    };
    if !is_asleep(&scale) {
        return Ok(());
    }
    let params = PatchParams {
        field_manager: Some(manager::SCALE.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({
        "metadata": {"resourceVersion": scale.metadata.resource_version},
        "spec": {"replicas": wake.replicas},
    });
    let writer = context.applier.writer(namespace).await.map_err(refused)?;
    let api: Api<DynamicObject> = Api::namespaced_with(writer, namespace, resource.as_ref());
    let patch = Patch::Merge(&patch);
    let patched = api.patch_scale(&object.name, &params, &patch);
    patched.await.map(drop).map_err(refused)
}
