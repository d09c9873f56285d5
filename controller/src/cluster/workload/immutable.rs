//! Immutable fields in which a workload differs from what is wanted (FW-22).

use asya_shared::api::WorkloadKind;
use serde_json::Value;

/// Path of the selector: pods that it does not match cannot be adopted.
pub const SELECTOR: &str = "spec.selector";

/// Paths of the immutable fields of `wanted` that `live` has otherwise.
pub fn differences(kind: WorkloadKind, wanted: &Value, live: &Value) -> Vec<String> {
    let fields: &[&str] = match kind {
        WorkloadKind::Deployment => &["selector"],
        WorkloadKind::StatefulSet => &[
            "selector",
            "serviceName",
            "podManagementPolicy",
            "volumeClaimTemplates",
        ],
    };
    let differs = |field: &&&str| !holds(&live["spec"][**field], &wanted["spec"][**field]);
    let differing = fields.iter().filter(differs);
    differing.map(|field| format!("spec.{field}")).collect()
}

/// Whether `live` holds everything wanted; additions by the API server do not count.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (_, Value::Null) => true,
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| holds(live.get(key).unwrap_or(&Value::Null), wanted)),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len()
                && live
                    .iter()
                    .zip(wanted)
                    .all(|(live, wanted)| holds(live, wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// FW-22
    #[test]
    fn only_immutable_differences_are_reported() {
        let wanted = json!({"spec": {
            "replicas": 2,
            "serviceName": "a",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "a"}},
            "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        }});
        let mut live = wanted.clone();
        live["spec"]["replicas"] = json!(5);
        live["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"] = json!("Filesystem");
        let found = |live: &Value| differences(WorkloadKind::StatefulSet, &wanted, live);
        assert!(
            found(&live).is_empty(),
            "defaults and replicas do not count"
        );
        live["spec"]["serviceName"] = json!("b");
        live["spec"]["podManagementPolicy"] = json!("OrderedReady");
        assert_eq!(
            found(&live),
            ["spec.serviceName", "spec.podManagementPolicy"]
        );
        live["spec"]["selector"]["matchLabels"]["app"] = json!("c");
        assert_eq!(
            differences(WorkloadKind::Deployment, &wanted, &live),
            [SELECTOR]
        );
    }
}
