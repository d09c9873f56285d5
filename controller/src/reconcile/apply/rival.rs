//! Finds out who took a field back. Watches of foreign kinds carry no `managedFields`, so this costs a read, made only
//! after a loss (CONF-8).

use asya_shared::resolve::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};

use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::contention::field_owner::{Segment, named};
use crate::record::Key;

/// Returns the field manager that now owns a field, and the controller of the object, because many field managers are
/// just called "manager".
pub(super) async fn find(
    context: &Context,
    namespace: &str,
    object: &ObjectRef,
    path: &[Segment],
) -> Result<Option<String>, Error> {
    let Some(resource) = context.bindings.resource_of(object) else {
        return Ok(None);
    };
    let key = Key::new(namespace, &object.name);
    let live = metadata(context, &resource, &key).await?;
    Ok(live.and_then(|live| named(&live, path)))
}

/// Reads the metadata of an object, including `managedFields`.
pub(super) async fn metadata(
    context: &Context,
    resource: &ApiResource,
    key: &Key,
) -> Result<Option<ObjectMeta>, Error> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &key.namespace, resource);
    let live = api.get_metadata_opt(&key.name).await.map_err(Error::Api)?;
    Ok(live.map(|live| live.metadata))
}
