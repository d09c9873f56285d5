//! What must hold of targets that have owners.

use std::sync::Arc;

use serde_json::Value;

use crate::api_server::resources;
use crate::api_server::store::{Id, Store};
use crate::world::owners::kind::owner_of_kind;

/// What makes the pods of a target: its workload, or itself. `None` if it does not exist.
#[must_use]
pub fn workload(store: &Store, namespace: &str, target: &Value) -> Option<Arc<Value>> {
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    let name = text("name");
    if let Some(owner) = owner_of_kind(text("kind")) {
        let id = Id::new(owner.target(), namespace, name);
        let live = store.get(&id)?;
        return match owner.workload(&id) {
            Some(workload) => store.get(&workload),
            None => Some(live),
        };
    }
    let resource = match text("kind") {
        "StatefulSet" => &resources::STATEFUL_SETS,
        _ => &resources::DEPLOYMENTS,
    };
    store.get(&Id::new(resource, namespace, name))
}

/// Whether a workload has fewer pods than its owner alone would give it: those that the owner's HPA asks for, which is
/// there unless the queue scales.
#[must_use]
pub fn too_few(store: &Store, workload: &Value, is_scaled: bool) -> Option<String> {
    let metadata = &workload["metadata"];
    let (namespace, name) = (&metadata["namespace"], &metadata["name"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owners = metadata["ownerReferences"].as_array();
    if owners.is_none_or(|owners| owners.iter().all(|it| it["kind"] != "InferenceService")) {
        return None;
    }
    let hpa = Id::new(&resources::HPAS, &text(namespace), &text(name));
    let replicas = &workload["spec"]["replicas"];
    match (store.get(&hpa), is_scaled) {
        (Some(_), true) => Some("the owner's HPA scales it, and the queue does".to_owned()),
        (None, false) => Some("neither the owner's HPA scales it, nor does the queue".to_owned()),
        (Some(hpa), false) => {
            let least = hpa["spec"]["minReplicas"].as_u64().unwrap_or(1);
            (replicas.as_u64().unwrap_or(1) < least)
                .then(|| format!("{replicas} replicas, but its owner's HPA asks for {least}"))
        }
        (None, true) => None,
    }
}
