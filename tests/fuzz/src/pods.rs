//! Pods of any shape, from a seed.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "only tests call this, with pods"
)]

use fastrand::Rng;
use serde_json::{Map, Value, json};

fn word(rng: &mut Rng) -> String {
    let odd = [
        "a/b",
        "a~b",
        "a~1b",
        "ü",
        "with space",
        "quote\"",
        "back\\slash",
        "line\nbreak",
        "$(X)",
        "",
    ];
    if rng.u8(..8) == 0 {
        return rng.choice(odd).unwrap_or_default().to_owned();
    }
    (0..rng.usize(1..10)).map(|_| rng.lowercase()).collect()
}

fn maybe(rng: &mut Rng, of: impl FnOnce(&mut Rng) -> Value) -> Option<Value> {
    match rng.u8(..4) {
        0 => None,
        1 => Some(Value::Null),
        _ => Some(of(rng)),
    }
}

fn put(parent: &mut Value, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        parent[key] = value;
    }
}

fn words(rng: &mut Rng, most: usize) -> Value {
    let entries = (0..rng.usize(..=most)).map(|_| (word(rng), Value::from(word(rng))));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn amounts(rng: &mut Rng) -> Value {
    let one = |rng: &mut Rng| {
        *rng.choice(&["1", "500m", "1Gi", "0.5", "0"])
            .unwrap_or(&"1")
    };
    let fixed = json!({"cpu": one(rng), "memory": one(rng)});
    match rng.u8(..4) {
        0 => json!({}),
        1 => json!({"limits": fixed, "requests": fixed}),
        2 => json!({"limits": {"cpu": one(rng)}}),
        _ => json!({"requests": {"memory": one(rng), "nvidia.com/gpu": 1}}),
    }
}

fn container(rng: &mut Rng, name: &str) -> Value {
    let mut container = json!({"name": name, "image": rng.choice(["me/model:1", "vllm/vllm-openai", "nvidia/tritonserver:1"])});
    put(
        &mut container,
        "env",
        maybe(rng, |rng| {
            (0..rng.usize(..5))
                .map(|_| json!({"name": word(rng), "value": word(rng)}))
                .collect()
        }),
    );
    put(
        &mut container,
        "ports",
        maybe(rng, |rng| {
            (0..rng.usize(..4))
                .map(|_| json!({"containerPort": rng.choice([8080, 18080, 18081, 18082, 9000])}))
                .collect()
        }),
    );
    put(&mut container, "resources", maybe(rng, amounts));
    put(
        &mut container,
        "volumeMounts",
        maybe(rng, |_| json!([{"name": "v", "mountPath": "/v"}])),
    );
    container["x-unknown"] = words(rng, 2);
    container
}

fn containers(rng: &mut Rng, prefix: &str, most: usize) -> Value {
    (0..rng.usize(1..=most))
        .map(|at| {
            let injected = ["istio-proxy", "linkerd-proxy", "daprd"];
            let name = match rng.u8(..6) {
                0 => rng.choice(injected).unwrap_or_default().to_owned() + prefix,
                _ => format!("{prefix}{at}"),
            };
            container(rng, &name)
        })
        .collect()
}

/// A variant of this pod that differs in everything that injection reads, and in fields that it does not know.
pub fn pod(rng: &mut Rng, mut pod: Value) -> Value {
    let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
    labels.extend(words(rng, 3).as_object().unwrap().clone());
    put(
        &mut pod["metadata"],
        "annotations",
        maybe(rng, |rng| words(rng, 4)),
    );
    if rng.u8(..8) == 0 {
        pod["metadata"]["annotations"] =
            json!({"asya.sh/not-injected": word(rng), "asya.sh/injected-by": "uid-0"});
    }
    put(
        &mut pod["metadata"],
        "name",
        maybe(rng, |rng| word(rng).into()),
    );
    pod["status"] = words(rng, 2);
    let spec = &mut pod["spec"];
    spec["containers"] = containers(rng, "c", 3);
    let init = maybe(rng, |rng| containers(rng, "i", 2));
    put(spec, "initContainers", init);
    if rng.bool() {
        spec.as_object_mut().unwrap().remove("volumes");
    }
    let volumes = maybe(rng, |rng| {
        (0..rng.usize(..4))
            .map(|at| json!({"name": format!("v{at}"), "emptyDir": {}}))
            .collect()
    });
    put(spec, "volumes", volumes);
    put(
        spec,
        "securityContext",
        maybe(rng, |rng| json!({"runAsUser": rng.choice([0, 7, 1000])})),
    );
    put(
        spec,
        "hostNetwork",
        maybe(rng, |rng| (rng.u8(..20) == 0).into()),
    );
    put(spec, "resources", (rng.u8(..10) == 0).then(|| amounts(rng)));
    put(spec, "nodeSelector", maybe(rng, |rng| words(rng, 2)));
    put(spec, "x-unknown", Some(words(rng, 3)));
    pod
}
