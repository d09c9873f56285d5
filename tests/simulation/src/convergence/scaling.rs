//! What may scale an actor's workload.

use serde_json::Value;

use crate::api_server::id::Id;
use crate::api_server::resources;
use crate::api_server::store::Store;
use crate::world::{keda, rivals};

/// The workload that an actor creates or binds, whether or not it exists.
#[must_use]
pub fn workload_of(actor: &Value) -> Id {
    let (metadata, spec) = (&actor["metadata"], &actor["spec"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = match &spec["workloadRef"] {
        Value::Object(target) => (&target["kind"], &target["name"]),
        _ => (&spec["workload"]["kind"], &metadata["name"]),
    };
    let resource = match kind.as_str() {
        Some("StatefulSet") => &resources::STATEFUL_SETS,
        _ => &resources::DEPLOYMENTS,
    };
    Id::new(resource, &text(&metadata["namespace"]), &text(name))
}

/// The reasons why `ScalingReady` must be false.
#[must_use]
pub fn scaling_faults(store: &Store, actor: &Value) -> Vec<&'static str> {
    let spec = &actor["spec"];
    let scales = spec["scaling"]["enabled"] == true;
    let sets_replicas = !spec["workload"]["replicas"].is_null();
    let lacks_keda = scales && !keda::is_installed(store);
    let has_rival = (scales || sets_replicas) && rivals::exists(store, &workload_of(actor));
    let faults = [
        (lacks_keda, "KedaNotInstalled"),
        (has_rival, "RivalAutoscaler"),
    ];
    let faults = faults.into_iter().filter(|(is_there, _)| *is_there);
    faults.map(|(_, reason)| reason).collect()
}
