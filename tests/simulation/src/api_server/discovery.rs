//! Discovery of API groups and their resources.

use serde_json::{Value, json};

use super::crds::Serving;
use super::resources;
use super::store::Store;

/// The group, or the resources of its only version; `None` if the group is not served.
#[must_use]
pub fn answer(store: &Store, group: &str, list_resources: bool) -> Option<Value> {
    let served = resources::in_group(group);
    let mut served = served
        .filter(|it| store.serving(it) != Serving::Absent)
        .peekable();
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
