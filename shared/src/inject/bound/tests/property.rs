//! Property tests over generated pods (INJ-7): injection is idempotent and neither loses nor moves anything of others.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::inject::bound::testing::{Binding, patched, pod as base, review, reviewed};
use crate::inject::bound::{Action, BoundActor, InjectionReason};

const PODS: u64 = 10_000;
const THREADS: u64 = 2;

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

pub(super) fn pod(rng: &mut Rng) -> Value {
    let mut pod = base(&json!({}));
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

pub(super) fn actors() -> Vec<BoundActor> {
    let role = Binding {
        role_arn: Some("arn:aws:iam::1:role/r"),
        ..Binding::new(&json!({"transport": "cloud"}))
    };
    let mut all: Vec<_> = [
        json!({}),
        json!({"sidecar": {"native": true, "env": [{"name": "B", "value": "$(A)"}, {"name": "A", "value": ""}]}}),
        json!({"runtime": {"targetURL": "http://127.0.0.1:5000", "env": [{"name": "X", "value": "$$"}]}}),
        json!({"runtime": {"resources": {"limits": {"cpu": 0.1}}}, "sidecar": {"resources": {"requests": {"memory": "1e6"}}}}),
    ]
    .iter()
    .map(|spec| Binding::new(spec).actor())
    .collect();
    all.push(role.actor());
    all
}

/// The pod without our parts.
pub(super) fn rest(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["containers", "initContainers", "volumes"] {
        if let Some(items) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) {
            items.retain(|it| {
                let name = it["name"].as_str();
                !name.is_some_and(|name| name.starts_with("asya-"))
            });
            if items.is_empty() {
                pod["spec"].as_object_mut().unwrap().remove(list);
            }
        }
    }
    for member in ["labels", "annotations"] {
        if let Some(entries) = pod["metadata"]
            .get_mut(member)
            .and_then(Value::as_object_mut)
        {
            entries.retain(|key, _| !key.starts_with("asya.sh/"));
            if entries.is_empty() {
                pod["metadata"].as_object_mut().unwrap().remove(member);
            }
        }
    }
    // an absent member and null are the same
    for parent in ["metadata", "spec"] {
        if let Some(members) = pod[parent].as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }
    pod
}

/// INJ-6, INJ-7
#[test]
fn injection_is_idempotent_and_keeps_what_others_added() {
    let actors = actors();
    let some_of_them = |remainder| {
        let seeds = (0..PODS).filter(move |seed| seed % THREADS == remainder);
        seeds
            .map(|seed| once_and_again(seed, &actors))
            .collect::<Vec<_>>()
    };
    let reasons: Vec<InjectionReason> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|it| scope.spawn(move || some_of_them(it)))
            .collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    let injected = reasons
        .iter()
        .filter(|it| **it == InjectionReason::Injected)
        .count();
    assert!((5_000..10_000).contains(&injected), "{injected}");
}

pub(super) fn once_and_again(seed: u64, actors: &[BoundActor]) -> InjectionReason {
    let rng = &mut Rng::with_seed(seed);
    let before = pod(rng);
    let actor = rng.choice(actors).unwrap();
    let decision = review(actor, &before);
    let after = match &decision.action {
        Action::Inject(patch) | Action::Annotate(patch) => patched(&before, patch),
        other => panic!("{seed}: {other:?}"),
    };
    assert_eq!(rest(&after), rest(&before), "{seed}");
    let again = review(actor, &after);
    assert_eq!(again.action, Action::Allow, "{seed}: {after}");
    if decision.reason != InjectionReason::Injected {
        assert_eq!(again.reason, decision.reason, "{seed}");
        return decision.reason;
    }
    assert_eq!(again.reason, InjectionReason::AlreadyInjected, "{seed}");
    let first = &before["spec"]["containers"][0];
    assert_eq!(&after["spec"]["containers"][0], first, "{seed}");
    if seed.is_multiple_of(5) {
        assert_eq!(review(actor, &before), decision, "{seed}");
        let other = rng.choice(actors).unwrap();
        damaged_and_again(rng, other, &before, after);
    }
    decision.reason
}

/// Damages one of our parts, or lets another actor bind the pod, and injects again.
fn damaged_and_again(rng: &mut Rng, actor: &BoundActor, before: &Value, mut pod: Value) {
    damage(rng, &mut pod);
    let restored = reviewed(actor, &pod);
    assert_eq!(rest(&restored), rest(before));
    assert_eq!(review(actor, &restored).action, Action::Allow, "{pod}");
    let first = &before["spec"]["containers"][0];
    assert_eq!(&restored["spec"]["containers"][0], first);
}

fn damage(rng: &mut Rng, pod: &mut Value) {
    let list = *rng
        .choice(&["containers", "initContainers", "volumes"])
        .unwrap();
    let Some(items) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    let ours: Vec<usize> = (0..items.len())
        .filter(|at| items[*at]["name"].as_str().unwrap().starts_with("asya-"))
        .collect();
    let Some(at) = rng.choice(&ours).copied() else {
        return;
    };
    let name = items[at]["name"].clone();
    match rng.u8(..4) {
        0 => drop(items.remove(at)),
        1 => items[at] = json!({"name": name}),
        2 => {
            let item = items.remove(at);
            items.push(item);
        }
        _ => {
            if let Some(env) = items[at].get_mut("env").and_then(Value::as_array_mut) {
                env.truncate(1);
                env.push(json!({"name": "ASYA_TARGET_URL", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}));
            }
        }
    }
}
