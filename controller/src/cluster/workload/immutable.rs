//! Immutable fields in which a workload differs from its desired state (FW-22).

use asya_shared::api::WorkloadKind;
use serde_json::Value;

/// Path of the selector: pods that it does not match cannot be adopted.
pub const SELECTOR: &str = "spec.selector";

/// Paths of the immutable fields in which `existing` differs from `desired`.
pub fn differences(kind: WorkloadKind, desired: &Value, existing: &Value) -> Vec<String> {
    let fields: &[&str] = match kind {
        WorkloadKind::Deployment => &["selector"],
        WorkloadKind::StatefulSet => &[
            "selector",
            "serviceName",
            "podManagementPolicy",
            "volumeClaimTemplates",
        ],
    };
    let differs = |field: &&&str| !holds(&existing["spec"][**field], &desired["spec"][**field]);
    let differing = fields.iter().filter(differs);
    differing.map(|field| format!("spec.{field}")).collect()
}

/// Whether `existing` contains everything in `desired`; additions by the API server are ignored.
fn holds(existing: &Value, desired: &Value) -> bool {
    match (existing, desired) {
        (_, Value::Null) => true,
        (Value::Object(existing), Value::Object(desired)) => desired
            .iter()
            .all(|(key, desired)| holds(existing.get(key).unwrap_or(&Value::Null), desired)),
        (Value::Array(existing), Value::Array(desired)) => {
            existing.len() == desired.len()
                && existing
                    .iter()
                    .zip(desired)
                    .all(|(existing, desired)| holds(existing, desired))
        }
        _ => existing == desired,
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
        let mut existing = desired.clone();
        existing["spec"]["replicas"] = json!(5);
        existing["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"] = json!("Filesystem");
        let differing =
            |existing: &Value| differences(WorkloadKind::StatefulSet, &desired, existing);
        assert!(
            differing(&existing).is_empty(),
            "defaults and replicas are ignored"
        );
        existing["spec"]["serviceName"] = json!("b");
        existing["spec"]["podManagementPolicy"] = json!("OrderedReady");
        assert_eq!(
            differing(&existing),
            ["spec.serviceName", "spec.podManagementPolicy"]
        );
        existing["spec"]["selector"]["matchLabels"]["app"] = json!("c");
        assert_eq!(
            differences(WorkloadKind::Deployment, &desired, &existing),
            [SELECTOR]
        );
    }
}
