//! Discovery of a kind.

use std::sync::Arc;

use asya_shared::resolve::GroupKind;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Error};

use super::KindAvailability;
use crate::cluster::store::Scope;

/// Finds a kind in its group's preferred version, else in the others, and checks whether it may be listed.
pub(super) async fn standing(
    client: &Client,
    kind: GroupKind<'_>,
    place: &Scope,
) -> Result<KindAvailability, Error> {
    let Some((resource, version)) = find(client, kind).await? else {
        return Ok(KindAvailability::NotInstalled);
    };
    if !resource.namespaced {
        return Ok(KindAvailability::NotNamespaced);
    }
    let kind = GroupVersionKind::gvk(kind.group, &version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &resource.name);
    let api: Api<DynamicObject> = match place {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(KindAvailability::Served(Arc::new(resource))),
        Err(Error::Api(status)) if status.is_forbidden() => {
            Ok(KindAvailability::Forbidden(rule(&resource).into()))
        }
        Err(Error::Api(status)) if status.code == 404 => Ok(KindAvailability::NotInstalled),
        Err(error) => Err(error),
    }
}

/// RBAC rule that grants read access to a kind, in the form of a `ClusterRole`.
fn rule(resource: &ApiResource) -> String {
    let ApiResource { group, plural, .. } = resource;
    format!("- apiGroups: [{group}]\n  resources: [{plural}]\n  verbs: [get, list, watch]\n")
}

async fn find(
    client: &Client,
    kind: GroupKind<'_>,
) -> Result<Option<(APIResource, String)>, Error> {
    let Some(group) = group(client, kind.group).await? else {
        return Ok(None);
    };
    let preferred = group.preferred_version.map(|it| it.version);
    let mut versions: Vec<_> = group.versions.into_iter().map(|it| it.version).collect();
    versions.sort_by_key(|it| Some(it) != preferred.as_ref());
    for version in versions {
        let group_version = format!("{}/{version}", kind.group);
        let known = match client.list_api_group_resources(&group_version).await {
            Ok(known) => known.resources,
            Err(Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error),
        };
        let is_it = |it: &APIResource| it.kind == kind.kind && !it.name.contains('/');
        if let Some(resource) = known.into_iter().find(is_it) {
            return Ok(Some((resource, version)));
        }
    }
    Ok(None)
}

/// Reads an API group; `None` if it is not served. Such a 404 has a plain-text body, so only the status code is
/// checked.
async fn group(client: &Client, name: &str) -> Result<Option<APIGroup>, Error> {
    let request = Request::get(format!("/apis/{name}")).body(Vec::new());
    match client.request(request.map_err(Error::HttpError)?).await {
        Ok(group) => Ok(Some(group)),
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
