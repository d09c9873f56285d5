//! Immutable fields in which a workload differs from its desired state (FW-22).

use asya_shared::api::WorkloadKind;
use serde_json::Value;

/// Path of the selector: pods that it does not match cannot be adopted.
pub const SELECTOR: &str = "spec.selector";

/// Paths of the immutable fields in which `live` differs from `desired`.
pub fn differences(kind: WorkloadKind, desired: &Value, live: &Value) -> Vec<String> {
    let fields: &[&str] = match kind {
        WorkloadKind::Deployment => &["selector"],
        WorkloadKind::StatefulSet => &[
            "selector",
            "serviceName",
            "podManagementPolicy",
            "volumeClaimTemplates",
        ],
    };
    let differs = |field: &&&str| !holds(&live["spec"][**field], &desired["spec"][**field]);
    let differing = fields.iter().filter(differs);
    differing.map(|field| format!("spec.{field}")).collect()
}

/// Whether `live` contains everything in `desired`; additions by the API server are ignored.
fn holds(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(desired)) => desired
            .iter()
            .all(|(key, desired)| holds(live.get(key).unwrap_or(&Value::Null), desired)),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && live
                    .iter()
                    .zip(desired)
                    .all(|(live, desired)| holds(live, desired))
        }
        _ => live == desired,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// FW-22
    #[test]
    fn only_immutable_differences_are_reported() {
        let desired = json!({"spec": {
            "replicas": 2,
            "serviceName": "a",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "a"}},
            "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        }});
        let mut live = desired.clone();
        live["spec"]["replicas"] = json!(5);
        live["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"] = json!("Filesystem");
        let differing = |live: &Value| differences(WorkloadKind::StatefulSet, &desired, live);
        assert!(
            differing(&live).is_empty(),
            "defaults and replicas are ignored"
        );
        live["spec"]["serviceName"] = json!("b");
        live["spec"]["podManagementPolicy"] = json!("OrderedReady");
        assert_eq!(
            differing(&live),
            ["spec.serviceName", "spec.podManagementPolicy"]
        );
        live["spec"]["selector"]["matchLabels"]["app"] = json!("c");
        assert_eq!(
            differences(WorkloadKind::Deployment, &desired, &live),
            [SELECTOR]
        );
    }
}
