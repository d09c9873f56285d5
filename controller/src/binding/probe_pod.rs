//! Builds pods for dry runs (ROLL-2, SAFE-7): as the workload's controller would create them, with the target's own
//! requests.

use asya_shared::inject::bound::without_ours;
use asya_shared::resolve;
use serde_json::{Value, json};

use crate::binding::specimen::{PROBE_NAME, Specimen, least_spec};

/// Fields that only a running pod has. The API server rejects some of them in a new pod, and admission sets the others.
const OF_RUNNING_PODS: [&str; 5] = [
    "nodeName",
    "ephemeralContainers",
    "priority",
    "preemptionPolicy",
    "overhead",
];

/// The minimal pod that matches the target.
pub fn least_of(specimen: &Specimen) -> Option<Value> {
    from_template(&json!({"spec": least_spec()}), None, specimen)
}

/// The pod template without our containers. Another actor's sidecar must be removed before this actor's is injected
/// (BIND-45).
fn without_sidecar(template: &Value) -> Value {
    let mut template = template.clone();
    without_ours(&mut template);
    template
}

/// A pod of a workload, without the sidecar in its template, for a dry run.
pub fn bare_pod(workload: &Value, specimen: &Specimen) -> Option<Value> {
    let claims = workload.pointer("/spec/volumeClaimTemplates");
    from_template(
        &without_sidecar(resolve::template(workload)?),
        claims,
        specimen,
    )
}

/// A pod as the workload's controller would create it.
pub fn from_template(
    template: &Value,
    claims: Option<&Value>,
    specimen: &Specimen,
) -> Option<Value> {
    let mut labels = template
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    labels.extend(specimen.labels.clone());
    let mut spec = template.get("spec")?.clone();
    let claims = claims.and_then(Value::as_array).into_iter().flatten();
    for claim in claims {
        // The controller names claims only when it creates a pod.
        let volume = json!({"name": claim["metadata"]["name"], "emptyDir": {}});
        match spec["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume),
            None => spec["volumes"] = json!([volume]),
        }
    }
    Some(probe(
        &json!({
            "labels": labels,
            "annotations": template.pointer("/metadata/annotations"),
            "ownerReferences": [specimen.owner],
        }),
        spec,
    ))
}

/// A copy of a running pod, without what the scheduler, admission and we have added.
pub fn from_pod(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|field, _| !OF_RUNNING_PODS.contains(&field.as_str()));
    }
    for list in ["containers", "initContainers", "volumes"] {
        if let Some(list) = spec[list].as_array_mut() {
            list.retain(|it| {
                !it["name"]
                    .as_str()
                    .is_some_and(|it| it.starts_with("asya-"))
            });
        }
    }
    let mut annotations = pod["metadata"]["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("asya.sh/"));
    }
    let mut owners = pod["metadata"]["ownerReferences"].clone();
    // Some clusters allow this field only to users who may set finalizers on the owner.
    for owner in owners.as_array_mut().into_iter().flatten() {
        if let Some(owner) = owner.as_object_mut() {
            owner.remove("blockOwnerDeletion");
        }
    }
    let labels = &pod["metadata"]["labels"];
    probe(
        &json!({"labels": labels, "annotations": annotations, "ownerReferences": owners}),
        spec,
    )
}

fn probe(metadata: &Value, mut spec: Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["generateName"] = json!(PROBE_NAME);
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests;
