//! Inputs of a preview besides the actor and its target.

use asya_shared::api::AsyncActor;
use asya_shared::hash;
use asya_shared::inject::{default_limits, limits_to_set, required_limits};
use asya_shared::names::{RUNTIME_CONFIG_MAP, RUNTIME_SCRIPT_KEY, annotation};
use asya_shared::resolve::IntermediateOwners;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, ResourceQuota};
use serde_json::Value;

use crate::cluster::{Cluster, resource};
use crate::why;

/// Stands in for the hash of a script that the operator has not written yet.
const UNKNOWN_HASH: &str = "unknown";

/// The namespace of an actor.
#[derive(Debug, Default)]
pub struct NamespaceState {
    /// Other actors.
    pub others: Vec<Value>,
    /// Resources for which a quota requires limits.
    pub limits: Vec<String>,
    /// The runtime script, if an actor in the namespace has needed it before.
    pub script: Option<Value>,
    pub clusters: Option<IntermediateOwners>,
}

/// Reads the state of the namespace; what cannot be read counts as absent, and is noted.
pub async fn namespace_state(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    notes: &mut Vec<String>,
) -> NamespaceState {
    let within = Some(namespace);
    let (actors, quotas, ranges) = (
        resource::<AsyncActor>(),
        resource::<ResourceQuota>(),
        resource::<LimitRange>(),
    );
    let script = resource::<ConfigMap>();
    let (actors, quotas, ranges, script) = futures::join!(
        cluster.list(&actors, within),
        cluster.list(&quotas, within),
        cluster.list(&ranges, within),
        cluster.get(&script, within, RUNTIME_CONFIG_MAP),
    );
    let mut listed = |result: Result<Vec<Value>, crate::cluster::ApiFailure>| {
        result
            .map_err(|failure| notes.push(failure.text))
            .unwrap_or_default()
    };
    let (mut others, quotas, ranges) = (listed(actors), listed(quotas), listed(ranges));
    others.retain(|it| it["metadata"]["name"] != name);
    let limits = limits_to_set(
        quotas.iter().map(|it| required_limits(&it["spec"])),
        ranges.iter().map(|it| default_limits(&it["spec"])),
    );
    NamespaceState {
        others,
        limits: limits.into_iter().map(String::from).collect(),
        script: script
            .map_err(|failure| notes.push(failure.text))
            .unwrap_or_default(),
        clusters: why::ray_clusters(cluster, namespace).await.ok(),
    }
}

/// The hash of the runtime script: the workload's, because a preview is about the actor rather than an upgrade of the
/// operator, or else that of the namespace's script.
pub fn runtime_hash(workload: Option<&Value>, script: Option<&Value>) -> String {
    let annotations = workload.and_then(|it| it.pointer("/spec/template/metadata/annotations"));
    let current = annotations.and_then(|it| it[annotation::RUNTIME_HASH].as_str());
    let text = script.and_then(|it| it["data"][RUNTIME_SCRIPT_KEY].as_str());
    let of_script = || text.map(|it| hash::of_bytes(it.as_bytes()));
    current
        .map(str::to_owned)
        .or_else(of_script)
        .unwrap_or_else(|| UNKNOWN_HASH.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// RUN-4
    #[test]
    fn preview_assumes_the_script_that_pods_have() {
        let workload = json!({"spec": {"template": {"metadata": {"annotations": {"asya.sh/runtime-hash": "old"}}}}});
        let script = json!({"data": {"asya_runtime.py": "text"}});
        let of_text = hash::of_bytes(b"text");
        for (workload, script, expected) in [
            (Some(&workload), Some(&script), "old"),
            (None, Some(&script), &*of_text),
            (None, None, "unknown"),
        ] {
            assert_eq!(runtime_hash(workload, script), expected);
        }
    }
}
