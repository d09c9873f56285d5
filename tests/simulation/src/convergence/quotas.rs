//! What must hold while quotas limit the pods of targets (SAFE-1, SAFE-7).

use std::sync::Arc;

use serde_json::Value;

use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources;
use crate::api_server::store::{Store, owners};
use crate::convergence::owners;
use crate::world::World;
use crate::world::quotas;
use crate::world::targets::is_target;
use crate::world::workloads::RESOURCES;

/// The targets that lack a pod which the quota of their namespace would admit without the sidecar, although no binding
/// requires that.
#[must_use]
pub fn lacking_pods(world: &World) -> Vec<String> {
    let server = world.server.lock();
    let store = &server.store;
    let workloads = RESOURCES.iter().flat_map(|resource| store.all(resource));
    let targets = workloads.filter(|(_, workload)| is_target(workload));
    let lacking = targets.filter(|(_, target)| !is_required(store, target));
    lacking
        .filter_map(|(id, target)| lacks_pod(store, id, target))
        .collect()
}

fn lacks_pod(store: &Store, id: &Id, target: &Arc<Object>) -> Option<String> {
    let uid = &target["metadata"]["uid"];
    let pods = store.all(&resources::PODS).map(|(_, pod)| pod);
    let own = pods.filter(|pod| {
        owners(pod).any(|owner| owner["uid"] == *uid)
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    let own = own.count() as u64;
    let wanted = target["spec"]["replicas"].as_u64().unwrap_or(1);
    if own >= wanted || target["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let pod = Id::new(&resources::PODS, &id.namespace, "without-sidecar");
    quotas::check(store, &pod, &without_sidecar(&target["spec"]["template"])).ok()?;
    Some(format!(
        "{id} has {own} of {wanted} pods, though the quota admits another one without the sidecar"
    ))
}

/// Whether a binding of the target prefers no pod to one without the sidecar.
fn is_required(store: &Store, target: &Value) -> bool {
    let namespace = target["metadata"]["namespace"].as_str().unwrap_or_default();
    let actors = store.all(&resources::ACTORS);
    let mut own = actors.filter(|(id, _)| id.namespace == namespace);
    own.any(|(_, actor)| {
        let spec = &actor["spec"];
        let bound = owners::workload(store, namespace, &spec["workloadRef"]);
        spec["binding"]["required"] == true
            && bound.is_some_and(|it| it["metadata"]["uid"] == target["metadata"]["uid"])
    })
}

fn without_sidecar(template: &Value) -> Value {
    let mut pod = template.clone();
    for list in ["containers", "initContainers"] {
        if let Some(containers) = pod["spec"][list].as_array_mut() {
            let is_ours = |name: &str| name.starts_with("asya-");
            containers.retain(|it| !it["name"].as_str().is_some_and(is_ours));
        }
    }
    pod
}
