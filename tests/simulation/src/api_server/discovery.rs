//! Discovery of groups and their resources.

use serde_json::{Value, json};

use super::resources::{self, Resource};
use super::store::{Id, Store};

/// The group, or the resources of its only version; `None` if it is not served.
#[must_use]
pub fn answer(store: &Store, group: &str, list_resources: bool) -> Option<Value> {
    let all = resources::in_group(group);
    let mut served = all.filter(|it| is_served(store, it)).peekable();
    let version = served.peek()?.version;
    let group_version = format!("{group}/{version}");
    if !list_resources {
        let version = json!({"groupVersion": group_version, "version": version});
        return Some(json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": [version], "preferredVersion": version,
        }));
    }
    let resources = served.map(|it| {
        json!({
            "name": it.plural, "singularName": "", "namespaced": it.namespaced, "kind": it.kind,
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        })
    });
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": resources.collect::<Vec<_>>(),
    }))
}

/// The kinds of owners are served while they have a CRD.
fn is_served(store: &Store, resource: &'static Resource) -> bool {
    let of_owner = [
        &resources::INFERENCE_SERVICES,
        &resources::RAY_CLUSTERS,
        &resources::WORKSPACES,
    ];
    let crd = Id::new(&resources::CRDS, "", &resource.qualified());
    !of_owner.contains(&resource) || store.get(&crd).is_some()
}
