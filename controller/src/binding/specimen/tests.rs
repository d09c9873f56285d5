use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::judge;

fn containers(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

fn answer(annotations: &Value, spec: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap()
}

fn marks(by: &str, hash: &str) -> Value {
    json!({"asya.sh/injected-by": by, "asya.sh/injected-hash": hash})
}

/// CFG-8, ROLL-2, SIM-9
#[test]
fn only_a_pod_with_this_actors_mark_part_and_containers_is_one_of_its() {
    let model = containers(&["model"]);
    let whole = json!({"containers": containers(&["model", "asya-runtime", "asya-sidecar"])});
    let native = json!({
        "containers": containers(&["model", "asya-runtime"]),
        "initContainers": containers(&["asya-sidecar"]),
    });
    let without = |name: &str| {
        let all = ["model", "asya-runtime", "asya-sidecar"];
        let left: Vec<_> = all.into_iter().filter(|it| *it != name).collect();
        json!({"containers": containers(&left)})
    };
    let ours = marks("uid-of-a", "actorpart.any");
    for (annotations, spec, lacks) in [
        (&ours, &whole, None),
        (&ours, &native, None),
        (
            &marks("uid-of-a", "other.any"),
            &whole,
            Some("another spec"),
        ),
        (
            &marks("another", "actorpart.any"),
            &whole,
            Some("was not asked"),
        ),
        (
            &json!({"asya.sh/injected-by": "uid-of-a"}),
            &whole,
            Some("another spec"),
        ),
        (
            &json!({}),
            &json!({"containers": model}),
            Some("was not asked"),
        ),
        (
            &json!({"asya.sh/not-injected": "HostNetwork"}),
            &whole,
            Some("HostNetwork"),
        ),
        (
            &ours,
            &without("asya-sidecar"),
            Some("another webhook removes it"),
        ),
        (
            &ours,
            &without("asya-runtime"),
            Some("another webhook removes it"),
        ),
    ] {
        let judged = judge(&answer(annotations, spec), "uid-of-a", Some("actorpart"));
        let told = judged.as_ref().err();
        assert_eq!(told.is_some(), lacks.is_some(), "{annotations} {spec}");
        if let Some((told, lacks)) = told.zip(lacks) {
            assert!(told.contains(lacks), "{told}");
        }
    }
}
