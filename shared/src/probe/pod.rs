//! Pods as the workload's controller would create them, with the target's own requests (ROLL-2, SAFE-7).

use serde_json::{Value, json};

use super::{PROBE_NAME_PREFIX, ProbeMetadata, minimal_spec};
use crate::inject::bound::strip_injected;
use crate::names::{annotation, label};
use crate::resolve;

/// Fields that only a running pod has. The API server rejects some of them on a new pod, and admission sets the others.
const RUNTIME_ONLY_FIELDS: [&str; 5] = [
    "nodeName",
    "ephemeralContainers",
    "priority",
    "preemptionPolicy",
    "overhead",
];

/// Builds the minimal pod that matches the target.
#[must_use]
pub fn minimal_pod(probe: &ProbeMetadata) -> Option<Value> {
    from_template(&json!({"spec": minimal_spec()}), None, probe)
}

/// The pod template without injected containers. Another actor's sidecar must be removed before this actor's is
/// injected (BIND-45). Labels that came without a sidecar stay: the pods have them, too (BIND-46).
fn without_sidecar(template: &Value) -> Value {
    let mut stripped = template.clone();
    strip_injected(&mut stripped);
    if !is_injected(template)
        && let Some(labels) = template.pointer("/metadata/labels")
    {
        stripped["metadata"]["labels"] = labels.clone();
    }
    stripped
}

fn is_injected(pod: &Value) -> bool {
    let annotations = pod.pointer("/metadata/annotations");
    annotations.is_some_and(|it| it.get(annotation::INJECTED_BY).is_some())
}

/// Builds a pod of a workload for a dry run, without the sidecar in its template.
#[must_use]
pub fn pod_without_sidecar(workload: &Value, probe: &ProbeMetadata) -> Option<Value> {
    let claims = workload.pointer("/spec/volumeClaimTemplates");
    from_template(
        &without_sidecar(resolve::template(workload)?),
        claims,
        probe,
    )
}

/// Builds a pod as the workload's controller would create it.
#[must_use]
pub fn from_template(
    template: &Value,
    claims: Option<&Value>,
    probe: &ProbeMetadata,
) -> Option<Value> {
    let mut labels = template
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    labels.extend(probe.labels.clone());
    let mut spec = template.get("spec")?.clone();
    let claims = claims.and_then(Value::as_array).into_iter().flatten();
    for claim in claims {
        // The workload's controller names the claims only when it creates a pod.
        let volume = json!({"name": claim["metadata"]["name"], "emptyDir": {}});
        match spec["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume),
            None => spec["volumes"] = json!([volume]),
        }
    }
    Some(build_pod(
        &json!({
            "labels": labels,
            "annotations": template.pointer("/metadata/annotations"),
            "ownerReferences": [probe.owner],
        }),
        spec,
    ))
}

/// Copies a running pod without the fields that the scheduler, admission and this operator have added.
#[must_use]
pub fn from_running_pod(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|field, _| !RUNTIME_ONLY_FIELDS.contains(&field.as_str()));
    }
    for list in ["containers", "initContainers", "volumes"] {
        if let Some(list) = spec[list].as_array_mut() {
            list.retain(|item| {
                !item["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("asya-"))
            });
        }
    }
    let mut annotations = pod["metadata"]["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("asya.sh/"));
    }
    let mut labels = pod["metadata"]["labels"].clone();
    if is_injected(pod)
        && let Some(labels) = labels.as_object_mut()
    {
        labels.retain(|key, _| ![label::ASYA, label::ACTOR].contains(&&**key));
    }
    let owners = &pod["metadata"]["ownerReferences"];
    let mut probe = build_pod(
        &json!({"labels": labels, "annotations": annotations, "ownerReferences": owners}),
        spec,
    );
    unblock_owners(&mut probe);
    probe
}

/// Removes `blockOwnerDeletion` from the owner references of an object for a dry run: some clusters, such as those with
/// `OpenShift`, allow this field only to users who may set finalizers on the owner.
pub fn unblock_owners(object: &mut Value) {
    let owners = object.pointer_mut("/metadata/ownerReferences");
    for owner in owners.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(owner) = owner.as_object_mut() {
            owner.remove("blockOwnerDeletion");
        }
    }
}

fn build_pod(metadata: &Value, mut spec: Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["generateName"] = json!(PROBE_NAME_PREFIX);
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
