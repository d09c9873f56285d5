//! Scales up a target that no autoscaler scales any more (SO-6).

use asya_shared::names::manager;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::binding::KindAvailability;
use crate::context::Context;
use crate::fault::StepError;
use crate::reconcile::plan::scale_from_zero::is_at_zero;
use crate::reconcile::plan::steps::ScaleFromZero;

/// Reads the current `/scale` and writes nothing if the target already has replicas or no longer exists. The write is
/// conditional on the `resourceVersion` that was read.
pub(super) async fn scale_up(
    context: &Context,
    namespace: &str,
    scale_up: &ScaleFromZero,
) -> Result<(), StepError> {
    let object = &scale_up.object;
    let kind = object.group_kind().into();
    let KindAvailability::Served(resource) = context.bindings.kinds.availability(&kind) else {
        return Ok(());
    };
    let rejected = |error| StepError::of_write(&object.to_string(), error);
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, resource.as_ref());
    let scale = match api.get_scale(&object.name).await {
        Ok(scale) => scale,
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
        Err(error) => return Err(rejected(error)),
    };
    if !is_at_zero(&scale) {
        return Ok(());
    }
    let params = PatchParams {
        field_manager: Some(manager::SCALE.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({
        "metadata": {"resourceVersion": scale.metadata.resource_version},
        "spec": {"replicas": scale_up.replicas},
    });
    let writer = context
        .impersonation
        .client_for(namespace)
        .await
        .map_err(rejected)?;
    let api: Api<DynamicObject> = Api::namespaced_with(writer, namespace, resource.as_ref());
    let patch = Patch::Merge(&patch);
    let patched = api.patch_scale(&object.name, &params, &patch);
    patched.await.map(drop).map_err(rejected)
}
