use asya_shared::resolve::{Family, ObjectRef, PodMatch, Related, Resolution, resolver};
use serde_json::{Value, json};

use super::{Live, TEMPLATE, from_pod, from_template, least, unavailable};
use crate::binding::specimen::Specimen;

fn deployment(spec: &Value, status: &Value) -> Value {
    let mut body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid", "generation": 3},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "8"}}},
            ]}},
        },
        "status": {"observedGeneration": 3, "replicas": 4, "updatedReplicas": 4},
    });
    for (key, of) in [("spec", spec), ("status", status)] {
        body[key]
            .as_object_mut()
            .unwrap()
            .extend(of.as_object().unwrap().clone());
    }
    body
}

fn live(body: &Value) -> Live {
    Live::of(&ObjectRef::of(body).unwrap(), body, Some(&TEMPLATE))
}

/// ROLL-2, ROLL-4, ROLL-6
#[test]
fn what_a_rollout_would_meet_is_read_off_the_workload() {
    let none = json!({});
    let still = live(&deployment(&none, &none));
    assert!(!still.rolling && !still.paused && still.gpus && still.lowers);
    assert_eq!(still.value, None);
    for (status, rolling) in [
        (json!({"observedGeneration": 2}), true),
        (json!({"updatedReplicas": 3}), true),
        (json!({"replicas": 5}), true),
        (json!({"unavailableReplicas": 2}), false),
    ] {
        assert_eq!(
            live(&deployment(&none, &status)).rolling,
            rolling,
            "{status}"
        );
    }
    assert!(live(&deployment(&json!({"paused": true}), &none)).paused);
    let surge =
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}});
    assert!(!live(&deployment(&surge, &none)).lowers);
    let recreate = json!({"strategy": {"type": "Recreate"}});
    assert!(live(&deployment(&recreate, &none)).lowers);

    let mut set = deployment(&json!({"updateStrategy": {"type": "OnDelete"}}), &none);
    set["kind"] = json!("StatefulSet");
    assert!(live(&set).by_eviction);
    set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    assert!(live(&set).by_eviction);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    assert!(!live(&set).by_eviction && !live(&set).rolling);
    set["status"] = json!({"observedGeneration": 3, "currentRevision": "a", "updateRevision": "b", "updatedReplicas": 1});
    assert!(live(&set).rolling);
}

#[test]
fn percentages_are_rounded_down() {
    assert!(unavailable(Some(&json!("25%")), 4) && !unavailable(Some(&json!("25%")), 3));
    assert!(unavailable(None, 4) && !unavailable(None, 1));
    assert!(unavailable(Some(&json!(1)), 1) && !unavailable(Some(&json!(0)), 9));
}

fn pods() -> PodMatch {
    let target = deployment(&json!({}), &json!({}));
    match resolver("apps", "Deployment").resolve(&target, &Related::default()) {
        Resolution::Found(found) => found.pods,
        other => panic!("{other:?}"),
    }
}

/// ROLL-2
#[test]
fn the_probe_is_a_pod_of_the_target_that_asks_for_nothing() {
    let body = deployment(&json!({}), &json!({}));
    let specimen = Specimen::of(&pods(), Family::Generic).unwrap();
    let claims = json!([{"metadata": {"name": "data"}}]);
    let pod = from_template(&body["spec"]["template"], Some(&claims), &specimen).unwrap();
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "web", "pod-template-hash": "asyaproof"})
    );
    assert_eq!(
        pod["metadata"]["ownerReferences"][0]["name"],
        "web-asyaproof"
    );
    let nothing = json!({"cpu": "0", "memory": "0"});
    let resources = &pod["spec"]["containers"][0]["resources"];
    assert_eq!(*resources, json!({"requests": nothing, "limits": nothing}));
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "data", "emptyDir": {}}])
    );

    let set = resolver("kaito.sh", "InferenceSet").convention("phis");
    let made_up = Specimen::of(&set, Family::Kaito).unwrap();
    let pod = from_template(&least(), None, &made_up).unwrap();
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["inferenceset.kaito.sh/created-by"], "phis");
    // By it the API server picks what it asks the webhook about.
    assert_eq!(labels["kaito.sh/workspace"], "asya-proof");

    let worker = json!({
        "metadata": {
            "labels": {"ray.io/cluster": "rc"}, "annotations": {"asya.sh/injected-by": "x", "a": "b"},
            "ownerReferences": [{"kind": "RayCluster", "name": "rc"}],
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "ray"}, {"name": "asya-runtime"}, {"name": "asya-sidecar"}],
            "volumes": [{"name": "asya-tmp"}, {"name": "shm"}],
        },
    });
    let pod = from_pod(&worker);
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(pod["spec"]["nodeName"], Value::Null);
    assert_eq!(pod["spec"]["containers"].as_array().map(Vec::len), Some(1));
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "shm"}]));
}
