use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::{Live, TEMPLATE, unavailable};

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
    let recreate = live(&deployment(&recreate, &none));
    assert!(recreate.lowers && recreate.by_eviction && !still.by_eviction);
    assert_eq!(
        (still.wanted, still.ready, still.drains_first),
        (Some(4), 0, false)
    );

    let mut set = deployment(&json!({"updateStrategy": {"type": "OnDelete"}}), &none);
    set["kind"] = json!("StatefulSet");
    assert!(live(&set).by_eviction && live(&set).drains_first);
    assert_eq!(live(&set).wanted, Some(4));
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
