//! Which local volumes do not keep the cluster autoscaler from evicting a pod (BIND-33).

use super::PodView;
use super::plan::BoundPlan;
use crate::names::annotation;

/// The value of the annotation that lists the local volumes that do not prevent eviction: those that it lists already,
/// and ours, which hold nothing worth keeping. `None` if the pod itself says whether it may be evicted.
pub(super) fn local_volumes(plan: &BoundPlan, pod: &PodView<'_>) -> Option<String> {
    if pod.annotation(annotation::SAFE_TO_EVICT).is_some() {
        return None;
    }
    let given = pod.annotation(annotation::LOCAL_VOLUMES).unwrap_or("");
    // The cluster autoscaler does not trim the names.
    let is_named = |name: &&str| given.split(',').any(|it| it == *name);
    let is_local = |volume: &&serde_json::Value| volume.get("emptyDir").is_some();
    let ours = plan.volumes.iter().filter(is_local);
    let missing = ours
        .filter_map(|it| it["name"].as_str())
        .filter(|name| !is_named(name));
    let given = (!given.is_empty()).then_some(given);
    let all: Vec<_> = given.into_iter().chain(missing).collect();
    Some(all.join(","))
}
