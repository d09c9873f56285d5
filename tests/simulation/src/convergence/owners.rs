//! What must hold for targets that have owners.

use std::sync::Arc;

use asya_owners::kserve::{AUTOSCALER_CLASS, STOP};
use serde_json::Value;

use crate::api_server::id::Id;
use crate::api_server::object::Object;
use crate::api_server::resources;
use crate::api_server::store::{Objects, Store, owners};
use crate::world::owners::kind::{REPLACED, owner_of_kind};

/// The object that creates the target's pods: its workload, or the target itself. `None` if it does not exist.
#[must_use]
pub fn workload(objects: &Objects, namespace: &str, target: &Value) -> Option<Arc<Object>> {
    let text = |field: &str| target[field].as_str().unwrap_or_default();
    let name = text("name");
    if let Some(owner) = owner_of_kind(text("kind")) {
        let id = Id::new(owner.target(), namespace, name);
        let live = objects.get(&id)?;
        return match owner.workload(&id) {
            Some(workload) => objects.get(&workload).cloned(),
            None => Some(Arc::clone(live)),
        };
    }
    let resource = match text("kind") {
        "StatefulSet" => &resources::STATEFUL_SETS,
        _ => &resources::DEPLOYMENTS,
    };
    objects.get(&Id::new(resource, namespace, name)).cloned()
}

/// Whether the user has stopped the target.
#[must_use]
pub fn is_stopped(store: &Store, namespace: &str, target: &Value) -> bool {
    let name = target["name"].as_str().unwrap_or_default();
    let service = Id::new(&resources::INFERENCE_SERVICES, namespace, name);
    let service = store.get(&service);
    target["kind"] == resources::INFERENCE_SERVICES.kind
        && service.is_some_and(|it| it["metadata"]["annotations"][STOP] == "true")
}

/// The `InferenceService` of a Deployment.
fn service_of(store: &Store, workload: &Value) -> Option<Arc<Object>> {
    let mut owners = owners(workload).filter(|it| it["kind"] == "InferenceService");
    let name = owners.next()?["name"].as_str()?;
    let namespace = workload["metadata"]["namespace"].as_str()?;
    store.get(&Id::new(&resources::INFERENCE_SERVICES, namespace, name))
}

/// The autoscaler class set by a user, which forbids the queue to scale.
#[must_use]
pub fn class_of_user(store: &Store, workload: &Value) -> Option<String> {
    let service = service_of(store, workload)?;
    let class = service["metadata"]["annotations"][AUTOSCALER_CLASS].as_str();
    class
        .filter(|class| *class != "external")
        .map(str::to_owned)
}

fn is_external(service: &Value) -> bool {
    service["metadata"]["annotations"][AUTOSCALER_CLASS] == "external"
}

/// Whether the queue scales a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueScaling {
    /// A `ScaledObject` exists.
    Active,
    /// No `ScaledObject` exists, and none can, because KEDA is not installed.
    WithoutKeda,
    /// No `ScaledObject` exists.
    Inactive,
}

/// Whether a workload has fewer pods than its owner alone would give it: those requested by the owner's HPA, which
/// exists unless the queue scales, or did so until KEDA was uninstalled.
#[must_use]
pub fn too_few(store: &Store, workload: &Value, scaling: QueueScaling) -> Option<String> {
    let service = service_of(store, workload)?;
    let metadata = &workload["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let hpa = Id::new(&resources::HPAS, text("namespace"), text("name"));
    let hpa = store.get(&hpa);
    let least = match (class_of_user(store, workload).as_deref(), &hpa) {
        (Some("none"), _) => &service["spec"]["predictor"]["minReplicas"],
        (_, Some(_)) if scaling == QueueScaling::Active => {
            return Some("the owner's HPA scales it, and the queue does".to_owned());
        }
        (_, Some(hpa)) => &hpa["spec"]["minReplicas"],
        (_, None) if scaling == QueueScaling::Active => return None,
        // The last number set by KEDA stays (SO-5), and the status says why, which is checked elsewhere.
        (_, None) if scaling == QueueScaling::WithoutKeda && is_external(&service) => return None,
        (_, None) => {
            return Some("neither the owner's HPA scales it, nor does the queue".to_owned());
        }
    };
    let replicas = &workload["spec"]["replicas"];
    (replicas.as_u64().unwrap_or(1) < least.as_u64().unwrap_or(1))
        .then(|| format!("{replicas} replicas, but its owner alone would give it {least}"))
}

/// Whether the owner of a workload replaces it with a manifest.
#[must_use]
pub fn is_replaced(workload: &Value) -> bool {
    workload["metadata"]["annotations"][REPLACED] == "true"
}
