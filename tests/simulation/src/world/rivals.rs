//! Autoscalers that users create for the workloads of actors, beside ours.

use serde_json::{Value, json};

use super::writer;
use crate::api_server::resources;
use crate::api_server::store::{Deletion, Id, Store};

const MANAGER: &str = "kube-controller-manager";
const MOST: i64 = 2;

/// Creates an HPA for a workload, between one pod and two.
pub fn create(store: &mut Store, workload: &Id) {
    let target = json!({
        "apiVersion": workload.resource.api_version(), "kind": workload.resource.kind, "name": workload.name,
    });
    let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": MOST});
    let _ = store.create(
        &hpa_of(&workload.namespace, &workload.name),
        json!({"metadata": {}, "spec": spec}),
        &writer("user"),
    );
}

/// Deletes the HPA for a workload of this name.
pub fn delete(store: &mut Store, namespace: &str, workload: &str) {
    let _ = store.delete(&hpa_of(namespace, workload), &Deletion::default());
}

/// Whether there is one.
#[must_use]
pub fn exists(store: &Store, workload: &Id) -> bool {
    let hpa = store.get(&hpa_of(&workload.namespace, &workload.name));
    hpa.is_some_and(|hpa| hpa["spec"]["scaleTargetRef"]["kind"] == workload.resource.kind)
}

/// One step of the HPA controller for them. It leaves workloads without pods alone.
pub fn step(store: &mut Store) {
    let workloads = [&resources::DEPLOYMENTS, &resources::STATEFUL_SETS];
    let workloads = workloads
        .into_iter()
        .flat_map(|resource| store.all(resource));
    let replicas = |workload: &Value| workload["spec"]["replicas"].as_i64().unwrap_or(1);
    let excessive =
        workloads.filter(|(id, workload)| replicas(workload) > MOST && exists(store, id));
    let excessive: Vec<Id> = excessive.map(|(id, _)| id.clone()).collect();
    for id in excessive {
        if let Some(live) = store.get(&id) {
            let mut scaled = (*live).clone();
            scaled["spec"]["replicas"] = MOST.into();
            let _ = store.update(&id, scaled, &writer(MANAGER));
        }
    }
}

fn hpa_of(namespace: &str, workload: &str) -> Id {
    Id::new(&resources::HPAS, namespace, &format!("users-{workload}"))
}
