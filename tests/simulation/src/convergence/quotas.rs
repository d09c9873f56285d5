//! What must hold while quotas limit the pods of targets (SAFE-1, SAFE-7).

use std::sync::Arc;

use serde_json::Value;

use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources::{self, Resource};
use crate::api_server::store::{Store, owners};
use crate::convergence::bindings::BindingExpectations;
use crate::convergence::owners;
use crate::world::World;
use crate::world::owners::kind::is_bindable;
use crate::world::quotas::{self, Limited};
use crate::world::replacements::template;
use crate::world::targets::{is_target, without_sidecar};

/// What creates the pods of targets.
static CREATORS: [&Resource; 3] = [
    &resources::DEPLOYMENTS,
    &resources::STATEFUL_SETS,
    &resources::RAY_CLUSTERS,
];

/// The targets that lack a pod which the quota of their namespace would admit without the sidecar, although no binding
/// requires that.
#[must_use]
pub fn lacking_pods(world: &World) -> Vec<String> {
    let server = world.server.lock();
    let store = &server.store;
    let workloads = CREATORS.iter().flat_map(|resource| store.all(resource));
    let targets = workloads.filter(|(_, workload)| is_target(workload));
    let lacking = targets.filter(|(_, target)| !is_required(store, target));
    lacking
        .filter_map(|(id, target)| lacks_pod(store, id, target))
        .collect()
}

fn lacks_pod(store: &Store, id: &Id, target: &Arc<Object>) -> Option<String> {
    let own = pods(store, target).len() as u64;
    let wanted = wanted(target);
    if own >= wanted || target["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let pod = without_sidecar(template(target));
    admits(store, &id.namespace, &pod).then(|| {
        format!(
            "{id} has {own} of {wanted} pods, though the quota admits another one without the sidecar"
        )
    })
}

/// The pods of a target, except terminating ones.
fn pods<'a>(store: &'a Store, target: &Value) -> Vec<&'a Value> {
    let uid = &target["metadata"]["uid"];
    let pods = store.all(&resources::PODS).map(|(_, pod)| &***pod);
    let own = pods.filter(|pod| {
        is_bindable(pod)
            && owners(pod).any(|owner| owner["uid"] == *uid)
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    own.collect()
}

/// How many pods a target should have.
fn wanted(target: &Value) -> u64 {
    let spec = &target["spec"];
    let replicas = if target["kind"] == "RayCluster" {
        &spec["workerGroupSpecs"][0]["replicas"]
    } else {
        &spec["replicas"]
    };
    replicas.as_u64().unwrap_or(1)
}

fn admits(store: &Store, namespace: &str, pod: &Value) -> bool {
    let id = Id::new(&resources::PODS, namespace, "another");
    quotas::check(store, &id, pod).is_ok()
}

/// Whether a binding of the target prefers no pod to one without the sidecar.
fn is_required(store: &Store, target: &Value) -> bool {
    let namespace = target["metadata"]["namespace"].as_str().unwrap_or_default();
    let actors = store.all(&resources::ACTORS);
    let mut own = actors.filter(|(id, _)| id.namespace == namespace);
    own.any(|(_, actor)| {
        let spec = &actor["spec"];
        let bound = owners::workload(store.objects(), namespace, &spec["workloadRef"]);
        spec["binding"]["required"] == true
            && bound.is_some_and(|it| it["metadata"]["uid"] == target["metadata"]["uid"])
    })
}

/// The bindings whose status is untrue about what the quota of their namespace does to their pods.
#[must_use]
pub fn false_reports(world: &World) -> Vec<String> {
    let server = world.server.lock();
    let store = &server.store;
    let actors = store.all(&resources::ACTORS);
    let actors = actors.filter(|(_, actor)| actor["metadata"]["deletionTimestamp"].is_null());
    actors
        .filter_map(|(id, actor)| Some(format!("{id}: {}", false_report(store, id, actor)?)))
        .collect()
}

fn false_report(store: &Store, id: &Id, actor: &Value) -> Option<String> {
    let (spec, status) = (&actor["spec"], &actor["status"]);
    let target = owners::workload(store.objects(), &id.namespace, &spec["workloadRef"]);
    let target = target.filter(|_| spec["workloadRef"].is_object())?;
    let is_bound = status["resolvedTarget"]["uid"] == target["metadata"]["uid"];
    if spec["binding"]["strategy"] == "Template" || !is_bound {
        return None;
    }
    let own = pods(store, &target);
    let injected = own.iter().filter(|pod| has_sidecar(pod)).count();
    let binding = BindingExpectations {
        store,
        id,
        actor,
        may_halt: false,
    };
    let current = own.iter().filter(|pod| binding.is_current(pod)).count() as u64;
    let counts = &status["pods"];
    let count = |field: &str| counts[field].as_u64().unwrap_or_default();
    if (count("matched"), count("injected")) != (own.len() as u64, injected as u64) {
        let matched = own.len();
        return Some(format!(
            "{injected} of {matched} pods have the sidecar; status: {counts}"
        ));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|it| it["type"] == "Injected");
    let condition = conditions.next().unwrap_or(&Value::Null);
    let is_rejected = condition["reason"] == "ProbeRejected";
    let message = condition["message"].as_str().unwrap_or_default();
    let is_refused = status["injection"]["refused"].is_string();
    let word = status["status"].as_str().unwrap_or_default();
    let what = match () {
        () if is_rejected && condition["status"] != "False" => "rejected, and not False",
        () if is_rejected && !message.contains(" quota: team") => "rejected without the reason",
        () if is_rejected && !is_refused => "rejected, and the webhook injects",
        () if is_rejected && word == "Running" => "rejected, and Running",
        () if condition["status"] == "True" && injected < own.len() => {
            "True, and a pod lacks the sidecar"
        }
        () if is_rejected && !rejects(store, &target, (own.len() as u64, current)) => {
            "rejected, and the quota has room for the sidecar"
        }
        () => return None,
    };
    Some(format!("{what}: STATUS {word}, Injected: {condition}"))
}

fn has_sidecar(pod: &Value) -> bool {
    let containers = pod["spec"]["containers"].as_array();
    let mut containers = containers.into_iter().flatten();
    containers.any(|it| it["name"] == "asya-sidecar")
}

/// Whether the quota may reject pods with the sidecar for its sake (SAFE-7).
fn rejects(store: &Store, target: &Value, (own, current): (u64, u64)) -> bool {
    let namespace = target["metadata"]["namespace"].as_str().unwrap_or_default();
    let Some((limited, hard)) = quotas::limit(store.objects(), namespace) else {
        return false;
    };
    let used = limited.used(store.objects(), namespace);
    let Ok(requested) = limited.of_pod(&without_sidecar(template(target))) else {
        // The owner's containers do not say what they request.
        return true;
    };
    let sidecar = limited.of_sidecar();
    let fits = |amount: i64| used + amount <= hard;
    let lacks = own < wanted(target);
    if limited == Limited::Pods {
        return used > hard;
    }
    if lacks && fits(requested) {
        return !fits(requested + sidecar);
    }
    // A pod with the current sidecar frees what its replacement needs.
    let is_current = own > 0 && current == own && !lacks;
    !fits(sidecar) && (used > hard || !is_current)
}
