//! Immutable fields in which a workload differs from its desired state (FW-22).

use asya_shared::api::WorkloadKind;
use asya_shared::json::is_subset;
use asya_shared::quantity::Quantity;
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
    is_subset(desired, existing, &|key, desired, existing| match key {
        "requests" | "limits" => Some(holds_quantities(existing.unwrap_or(&Value::Null), desired)),
        _ => desired.is_null().then_some(true),
    })
}

/// The API server stores `10240Mi` as `10Gi`.
fn holds_quantities(existing: &Value, desired: &Value) -> bool {
    let amounts = desired.as_object().into_iter().flatten();
    let mut amounts = amounts.map(|(resource, desired)| (&existing[resource], desired));
    amounts.all(|(existing, desired)| {
        let stored = Quantity::of(existing);
        let wanted = Quantity::of(desired);
        holds(existing, desired) || (stored.is_some() && stored == wanted)
    })
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
        for (wanted, stored, differs) in [
            (json!("10240Mi"), "10Gi", false),
            (json!("0.5Gi"), "512Mi", false),
            (json!(1024), "1024", false),
            (json!("10Gi"), "20Gi", true),
            (json!("much"), "10Gi", true),
        ] {
            let claim = |storage: &Value| {
                json!({"spec": {"volumeClaimTemplates": [
                    {"spec": {"resources": {"requests": {"storage": storage}}}},
                ]}})
            };
            let stored = claim(&json!(stored));
            let fields = differences(WorkloadKind::StatefulSet, &claim(&wanted), &stored);
            assert_eq!(!fields.is_empty(), differs, "{wanted}: {fields:?}");
        }
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
