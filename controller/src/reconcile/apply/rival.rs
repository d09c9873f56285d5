//! Asks who took a field back. Watches of foreign kinds carry no `managedFields`, so this is one read, at a loss and
//! never else (CONF-8).

use asya_shared::resolve::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::DynamicObject;

use crate::reconcile::conflict::rival::{self, Segment};
use crate::reconcile::observe::Observed;
use crate::reconcile::{Context, Error};

/// The rival for a field of an object, with who controls the object: many controllers are just called "manager".
pub(super) async fn find(
    context: &Context,
    observed: &Observed,
    object: &ObjectRef,
    path: &[Segment],
) -> Result<Option<String>, Error> {
    let Some(resource) = context.bindings.resource_of(object) else {
        return Ok(None);
    };
    let namespace = &observed.key().namespace;
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &*resource);
    let live = api.get_opt(&object.name).await.map_err(Error::Api)?;
    Ok(live.and_then(|live| named(&live.metadata, path)))
}

fn named(metadata: &ObjectMeta, path: &[Segment]) -> Option<String> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let rival = rival::of(entries, path)?;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|it| it.controller == Some(true));
    Some(match owner {
        Some(owner) => format!(
            "{rival}; the object is controlled by {} {}",
            owner.kind, owner.name
        ),
        None => rival.to_string(),
    })
}
