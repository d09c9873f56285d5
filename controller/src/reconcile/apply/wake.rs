//! Scales up a target that nothing scales any more (SO-6).

use asya_shared::names::manager;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::binding::KindAvailability;
use crate::context::Context;
use crate::fault::{Error, Fault, refused};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::steps::Wake;

/// Writes nothing if the target already has replicas or no longer exists.
pub(super) async fn wake(
    context: &Context,
    observed: &Observed,
    wake: &Wake,
) -> Result<Result<(), Fault>, Error> {
    let object = &wake.object;
    let kind = object.group_kind().into();
    let KindAvailability::Served(resource) = context.bindings.kinds.standing(&kind) else {
        return Ok(Ok(()));
    };
    let namespace = &observed.key().namespace;
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, resource.as_ref());
    let scale = match api.get_scale(&object.name).await {
        Ok(scale) => scale,
        Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Ok(())),
        Err(error) => return refused(&object.to_string(), error).map(Err),
    };
    if scale.spec.and_then(|spec| spec.replicas).unwrap_or(0) > 0 {
        return Ok(Ok(()));
    }
    let params = PatchParams {
        field_manager: Some(manager::SCALE.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({
        "metadata": {"resourceVersion": scale.metadata.resource_version},
        "spec": {"replicas": wake.replicas},
    });
    let writer = match context.applier.writer(namespace).await {
        Ok(writer) => writer,
        Err(error) => return refused(&object.to_string(), error).map(Err),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(writer, namespace, resource.as_ref());
    match api
        .patch_scale(&object.name, &params, &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(Ok(())),
        Err(error) => refused(&object.to_string(), error).map(Err),
    }
}
