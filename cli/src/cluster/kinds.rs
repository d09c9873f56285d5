//! Kinds that are known only at runtime, because a target names them.

use asya_shared::resolve::GroupKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResource};
use kube::api::ApiResource;
use kube::core::GroupVersionKind;

use super::{ApiFailure, Cluster};

impl Cluster {
    /// The resource of a namespaced kind, in the group's preferred version if that version has it; `None` if the API
    /// server does not know the kind.
    pub async fn kind(&self, kind: GroupKind<'_>) -> Result<Option<ApiResource>, ApiFailure> {
        let found = self.find_kind(kind).await;
        found.map_err(|error| ApiFailure::new(&format!("look up {kind}"), &self.server, error))
    }

    async fn find_kind(&self, kind: GroupKind<'_>) -> kube::Result<Option<ApiResource>> {
        if kind.group.is_empty() {
            let served = self.client.list_core_api_resources("v1").await?;
            return Ok(resource_of(kind, "v1", served.resources));
        }
        let groups = self.client.list_api_groups().await?.groups;
        let Some(group) = groups.into_iter().find(|it| it.name == kind.group) else {
            return Ok(None);
        };
        for version in versions(group) {
            let group_version = format!("{}/{version}", kind.group);
            let served = self.client.list_api_group_resources(&group_version).await?;
            if let Some(found) = resource_of(kind, &version, served.resources) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// The versions of a group, with the preferred one first.
fn versions(group: APIGroup) -> Vec<String> {
    let preferred = group.preferred_version.map(|it| it.version);
    let mut versions: Vec<_> = group.versions.into_iter().map(|it| it.version).collect();
    versions.sort_by_key(|version| Some(version) != preferred.as_ref());
    versions
}

fn resource_of(
    kind: GroupKind<'_>,
    version: &str,
    served: Vec<APIResource>,
) -> Option<ApiResource> {
    let is_kind =
        |it: &APIResource| it.kind == kind.kind && !it.name.contains('/') && it.namespaced;
    let found = served.into_iter().find(is_kind)?;
    let kind = GroupVersionKind::gvk(kind.group, version, kind.kind);
    Some(ApiResource::from_gvk_with_plural(&kind, &found.name))
}
