use serde_json::{Value, json};

use super::{
    ProbeMetadata, from_running_pod, from_template, minimal_pod, pod_without_sidecar,
    without_sidecar,
};
use crate::resolve::{Integration, PodMatch, Related, Resolution, resolver};

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "8"}}},
            ]}},
        },
    })
}

fn pods() -> PodMatch {
    match resolver("apps", "Deployment").resolve(&deployment(), &Related::default()) {
        Resolution::Found(target) => target.pods,
        other => panic!("{other:?}"),
    }
}

/// ROLL-2 (f), SAFE-7, BIND-45
#[test]
fn probe_pod_has_the_labels_owner_and_requests_of_the_target() {
    let body = deployment();
    let metadata = ProbeMetadata::of(&pods(), Integration::Generic).unwrap();
    let claims = json!([{"metadata": {"name": "data"}}]);
    let pod = from_template(&body["spec"]["template"], Some(&claims), &metadata).unwrap();
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "pod-template-hash": "asyaprobe"})
    );
    assert_eq!(
        pod["metadata"]["ownerReferences"][0]["name"],
        "web-asyaprobe"
    );
    assert_eq!(
        pod["spec"]["containers"][0]["resources"],
        json!({"limits": {"nvidia.com/gpu": 1, "cpu": "8"}})
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "data", "emptyDir": {}}])
    );
    assert_eq!(pod["metadata"]["generateName"], "asya-probe-");

    // Another actor's sidecar is removed before this actor's is injected.
    let mut templated = body["spec"]["template"].clone();
    templated["metadata"]["labels"]["asya.sh/asya"] = json!("other");
    templated["metadata"]["annotations"] = json!({"asya.sh/injected-by": "other-uid"});
    let containers = templated["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "asya-sidecar", "image": "s"}));
    let with_sidecar = from_template(&templated, Some(&claims), &metadata).unwrap();
    assert_ne!(with_sidecar, pod);
    let stripped = from_template(&without_sidecar(&templated), Some(&claims), &metadata);
    assert_eq!(stripped.unwrap(), pod);

    let set = resolver("kaito.sh", "InferenceSet").unresolved_pods("phis");
    let metadata = ProbeMetadata::of(&set, Integration::Kaito).unwrap();
    let pod = minimal_pod(&metadata).unwrap();
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["inferenceset.kaito.sh/created-by"], "phis");
    // The API server selects pods for the webhook by this label.
    assert_eq!(labels["kaito.sh/workspace"], "asya-probe");
}

/// CFG-8: Pod Security `restricted` asks for a user other than root, and `OpenShift` refuses any but its own choice.
#[test]
fn minimal_pod_is_restricted_and_leaves_its_user_to_the_cluster() {
    let metadata = ProbeMetadata::of(&pods(), Integration::Generic).unwrap();
    let pod = minimal_pod(&metadata).unwrap();
    assert_eq!(
        pod["spec"]["securityContext"],
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!(
        pod["spec"]["containers"][0]["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
}

/// ROLL-2 (f), SAFE-7
#[test]
fn probe_copied_from_a_running_pod_drops_runtime_only_fields() {
    let worker = json!({
        "metadata": {
            "labels": {"ray.io/cluster": "rc", "asya.sh/asya": "other", "asya.sh/actor": "other"},
            "annotations": {"asya.sh/injected-by": "x", "a": "b"},
            "ownerReferences": [{"kind": "RayCluster", "name": "rc", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "nodeName": "n", "priority": 7, "preemptionPolicy": "Never", "overhead": {"cpu": "1"},
            "ephemeralContainers": [{"name": "debug"}],
            "priorityClassName": "gold",
            "containers": [
                {"name": "ray", "resources": {"requests": {"cpu": "4"}}}, {"name": "asya-runtime"}, {"name": "asya-sidecar"},
            ],
            "volumes": [{"name": "asya-tmp"}, {"name": "shm"}],
        },
    });
    let pod = from_running_pod(&worker);
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"ray.io/cluster": "rc"}),
        "labels of another actor's sidecar go with it"
    );
    assert_eq!(
        pod["metadata"]["ownerReferences"],
        json!([{"kind": "RayCluster", "name": "rc", "controller": true}])
    );
    assert_eq!(
        pod["spec"],
        json!({
            "priorityClassName": "gold",
            "containers": [{"name": "ray", "resources": {"requests": {"cpu": "4"}}}],
            "volumes": [{"name": "shm"}],
        })
    );
}

/// BIND-46, ROLL-2 (f): the dry run must show what the real pods get, since a rollout would replace them for nothing.
#[test]
fn probe_keeps_labels_that_came_without_a_sidecar() {
    let metadata = ProbeMetadata::of(&pods(), Integration::Generic).unwrap();
    let mut body = deployment();
    body["spec"]["template"]["metadata"]["labels"]["asya.sh/asya"] = json!("other");
    let pod = pod_without_sidecar(&body, &metadata).unwrap();
    assert_eq!(pod["metadata"]["labels"]["asya.sh/asya"], "other");
    let worker =
        json!({"metadata": {"labels": {"asya.sh/actor": "other"}}, "spec": {"containers": []}});
    let pod = from_running_pod(&worker);
    assert_eq!(pod["metadata"]["labels"]["asya.sh/actor"], "other");
}
