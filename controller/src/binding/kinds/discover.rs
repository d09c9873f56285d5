//! Discovery of a kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use asya_shared::api::AsyncActor;
use asya_shared::resolve::GroupKind;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, Status};
use kube::{Api, Client, Error};
use serde::Deserialize;

use super::KindAvailability;
use crate::cluster::watch_scope::WatchScope;

/// Finds a kind in the version that its CRD stores, and checks whether it may be listed. Without a CRD, or if the
/// stored version is not served, uses the group's preferred version, else any other.
///
/// A write in another version would drop the fields that its schema lacks, and server-side apply would compare fields
/// of two schemas (RES-1).
///
/// Read access is checked in one of `access_scopes`: the first in which actors may be read, because a namespace without
/// any rights says nothing about the others (FW-12).
///
/// # Errors
/// If the API server fails, or does not serve the stored version yet.
pub(super) async fn availability(
    client: &Client,
    kind: GroupKind<'_>,
    access_scopes: &BTreeSet<WatchScope>,
) -> Result<KindAvailability, Error> {
    let Some((resource, version)) = find(client, kind).await? else {
        return Ok(KindAvailability::NotInstalled);
    };
    if !resource.namespaced {
        return Ok(KindAvailability::NotNamespaced);
    }
    let kind = GroupVersionKind::gvk(kind.group, &version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &resource.name);
    for scope in access_scopes {
        let api: Api<DynamicObject> = match scope {
            WatchScope::Namespace(namespace) => {
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
            WatchScope::Cluster => Api::all_with(client.clone(), &resource),
        };
        match api.list_metadata(&one()).await {
            Ok(_) => return Ok(KindAvailability::Served(Arc::new(resource))),
            Err(Error::Api(status)) if status.is_forbidden() => {}
            Err(Error::Api(status)) if status.code == 404 => {
                return Ok(KindAvailability::NotInstalled);
            }
            Err(error) => return Err(error),
        }
        if access_scopes.len() > 1 && has_rights(client, scope).await? {
            break;
        }
    }
    Ok(KindAvailability::Forbidden(rule(&resource).into()))
}

/// Whether actors may be read in a namespace.
async fn has_rights(client: &Client, scope: &WatchScope) -> Result<bool, Error> {
    let WatchScope::Namespace(namespace) = scope else {
        return Ok(true);
    };
    let actors: Api<AsyncActor> = Api::namespaced(client.clone(), namespace);
    match actors.list_metadata(&one()).await {
        Err(Error::Api(status)) if status.is_forbidden() => Ok(false),
        Err(Error::Api(status)) if status.code != 404 => Err(Error::Api(status)),
        Ok(_) | Err(Error::Api(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

fn one() -> ListParams {
    ListParams::default().limit(1)
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
    let preferred = group.preferred_version.map(|preferred| preferred.version);
    let mut versions: Vec<_> = group.versions.into_iter().map(|it| it.version).collect();
    versions.sort_by_key(|version| Some(version) != preferred.as_ref());
    for version in versions {
        let Some(resource) = in_version(client, kind, &version).await? else {
            continue;
        };
        let stored = stored_version(client, kind.group, &resource.name).await?;
        let Some(stored) = stored.filter(|stored| *stored != version) else {
            return Ok(Some((resource, version)));
        };
        // Discovery lags behind a changed CRD: keep the kind as it is until discovery has caught up.
        let Some(resource) = in_version(client, kind, &stored).await? else {
            let text =
                format!("{kind} is not served in {stored} yet, the version that its CRD stores");
            let not_found = Status::failure(&text, "NotFound").with_code(404);
            return Err(Error::Api(not_found.boxed()));
        };
        return Ok(Some((resource, stored)));
    }
    Ok(None)
}

async fn in_version(
    client: &Client,
    kind: GroupKind<'_>,
    version: &str,
) -> Result<Option<APIResource>, Error> {
    let group_version = format!("{}/{version}", kind.group);
    let resources = match client.list_api_group_resources(&group_version).await {
        Ok(list) => list.resources,
        Err(Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_kind =
        |resource: &APIResource| resource.kind == kind.kind && !resource.name.contains('/');
    Ok(resources.into_iter().find(is_kind))
}

/// The versions of a CRD, without its schemas, which can have megabytes.
#[derive(Deserialize)]
struct Crd {
    spec: CrdSpec,
}

#[derive(Deserialize)]
struct CrdSpec {
    versions: Vec<CrdVersion>,
}

#[derive(Deserialize)]
struct CrdVersion {
    name: String,
    served: bool,
    storage: bool,
}

/// Returns the version that a kind's CRD stores, if it is served; `None` if the kind has no readable CRD.
async fn stored_version(
    client: &Client,
    group: &str,
    plural: &str,
) -> Result<Option<String>, Error> {
    // A CRD's group is always a domain name.
    if !group.contains('.') {
        return Ok(None);
    }
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}");
    let request = Request::get(path).body(Vec::new());
    let crd: Crd = match client.request(request.map_err(Error::HttpError)?).await {
        Ok(crd) => crd,
        Err(Error::Api(status)) if matches!(status.code, 403 | 404) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut versions = crd.spec.versions.into_iter();
    let stored = versions.find(|version| version.storage && version.served);
    Ok(stored.map(|version| version.name))
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

#[cfg(test)]
mod tests;
