//! Autoscalers that users create for actors' workloads, in addition to ours.

use serde_json::json;

use super::writer;
use crate::api_server::deletion::Deletion;
use crate::api_server::id::Id;
use crate::api_server::resources;
use crate::api_server::store::Store;

/// Creates an HPA for a workload, with one to two pods.
pub fn create(store: &mut Store, workload: &Id) {
    let target = json!({
        "apiVersion": workload.resource.api_version(), "kind": workload.resource.kind, "name": workload.name,
    });
    let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2});
    let _ = store.create(
        &hpa_of(&workload.namespace, &workload.name),
        json!({"metadata": {}, "spec": spec}),
        &writer("user"),
    );
}

/// Deletes the HPA of the workload with this name.
pub fn delete(store: &mut Store, namespace: &str, workload: &str) {
    let _ = store.delete(&hpa_of(namespace, workload), &Deletion::default());
}

/// Whether there is an HPA for the workload.
#[must_use]
pub fn exists(store: &Store, workload: &Id) -> bool {
    let hpa = store.get(&hpa_of(&workload.namespace, &workload.name));
    hpa.is_some_and(|hpa| hpa["spec"]["scaleTargetRef"]["kind"] == workload.resource.kind)
}

fn hpa_of(namespace: &str, workload: &str) -> Id {
    Id::new(&resources::HPAS, namespace, &format!("users-{workload}"))
}
