//! Coexistence with other injectors (INJ-12), each represented by the shape of its result: every order, and
//! reinvocation.

use serde_json::{Value, json};

use crate::inject::bound::testing::{Binding, container, injected, names, pod, review, reviewed};
use crate::inject::bound::{BoundActor, InjectionReason};

/// Adds what an injector adds; like the real ones it does nothing if the pod is already injected.
type Injector = fn(&mut Value);

fn list<'a>(pod: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    let spec = pod["spec"].as_object_mut().unwrap();
    let list = spec.entry(name).or_insert(json!([]));
    list.as_array_mut().unwrap()
}

fn has(pod: &Value, name: &str) -> bool {
    let all = ["containers", "initContainers"].map(|list| names(pod, list));
    all.into_iter().flatten().any(|it| it == name)
}

fn volume(pod: &mut Value, name: &str) {
    list(pod, "volumes").push(json!({"name": name, "emptyDir": {"medium": "Memory"}}));
}

fn annotate(pod: &mut Value, key: &str, value: &str) {
    let metadata = pod["metadata"].as_object_mut().unwrap();
    metadata.entry("annotations").or_insert(json!({}))[key] = json!(value);
}

fn proxy() -> Value {
    json!({
        "name": "istio-proxy", "image": "istio/proxyv2:1.27", "args": ["proxy", "sidecar"],
        "ports": [{"containerPort": 15090, "name": "http-envoy-prom", "protocol": "TCP"}],
        "volumeMounts": [{"name": "istio-envoy", "mountPath": "/etc/istio/proxy"}],
    })
}

fn istio(pod: &mut Value) {
    if has(pod, "istio-proxy") {
        return;
    }
    let app = names(pod, "containers")[0].to_owned();
    annotate(pod, "kubectl.kubernetes.io/default-container", &app);
    list(pod, "containers").insert(0, proxy());
    list(pod, "initContainers").insert(
        0,
        json!({"name": "istio-init", "image": "istio/proxyv2:1.27"}),
    );
    volume(pod, "istio-envoy");
}

fn istio_native(pod: &mut Value) {
    if has(pod, "istio-proxy") {
        return;
    }
    let mut native = proxy();
    native["restartPolicy"] = json!("Always");
    list(pod, "initContainers").insert(0, native);
    volume(pod, "istio-envoy");
}

fn linkerd(pod: &mut Value) {
    if has(pod, "linkerd-proxy") {
        return;
    }
    let proxy = json!({
        "name": "linkerd-proxy", "image": "cr/linkerd/proxy", "ports": [{"containerPort": 4143}, {"containerPort": 4191}],
        "volumeMounts": [{"name": "linkerd-identity-end-entity", "mountPath": "/var/run/linkerd/identity/end-entity"}],
    });
    list(pod, "containers").insert(0, proxy);
    list(pod, "initContainers")
        .push(json!({"name": "linkerd-init", "image": "cr/linkerd/proxy-init"}));
    volume(pod, "linkerd-identity-end-entity");
}

/// Mounts its secrets into every container; on reinvocation also into containers added since.
fn vault(pod: &mut Value) {
    let mount = json!({"name": "vault-secrets", "mountPath": "/vault/secrets"});
    for container in list(pod, "containers") {
        let is_theirs = container["name"] == "vault-agent";
        let fields = container.as_object_mut().unwrap();
        let mounts = fields.entry("volumeMounts").or_insert(json!([]));
        let mounts = mounts.as_array_mut().unwrap();
        if !is_theirs && !mounts.contains(&mount) {
            mounts.push(mount.clone());
        }
    }
    if has(pod, "vault-agent") {
        return;
    }
    let agent = json!({"name": "vault-agent", "image": "hashicorp/vault", "volumeMounts": [mount]});
    list(pod, "containers").push(agent.clone());
    let mut init = agent;
    init["name"] = json!("vault-agent-init");
    list(pod, "initContainers").insert(0, init);
    volume(pod, "vault-secrets");
}

fn otel(pod: &mut Value) {
    if has(pod, "otc-container") {
        return;
    }
    let collector = json!({"name": "otc-container", "image": "otel/collector", "ports": [{"containerPort": 8888}]});
    list(pod, "containers").push(collector);
    volume(pod, "otc-internal");
}

fn daprd() -> Value {
    json!({"name": "daprd", "image": "daprio/daprd", "ports": [{"containerPort": 3500}, {"containerPort": 18080}]})
}

fn dapr(pod: &mut Value) {
    if !has(pod, "daprd") {
        list(pod, "containers").push(daprd());
    }
}

fn dapr_native(pod: &mut Value) {
    if !has(pod, "daprd") {
        let mut native = daprd();
        native["restartPolicy"] = json!("Always");
        list(pod, "initContainers").push(native);
    }
}

fn kserve(pod: &mut Value) {
    if has(pod, "storage-initializer") {
        return;
    }
    let init = json!({"name": "storage-initializer", "image": "kserve/storage-initializer", "args": ["s3://m", "/mnt/models"]});
    list(pod, "initContainers").push(init);
    volume(pod, "kserve-provision-location");
}

const INJECTORS: [(&str, Injector); 8] = [
    ("istio", istio),
    ("istio native", istio_native),
    ("linkerd", linkerd),
    ("vault", vault),
    ("otel", otel),
    ("dapr", dapr),
    ("dapr native", dapr_native),
    ("kserve", kserve),
];

fn actors() -> [BoundActor; 2] {
    [json!({}), json!({"sidecar": {"native": true}})].map(|spec| Binding::new(&spec).actor())
}

/// Every container must be there once: the pod's own unchanged, and ours as without other injectors, apart from
/// additions.
fn check(actor: &BoundActor, before: &Value, after: &Value, expected: &[&str], what: &str) {
    let mut all: Vec<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| names(after, list))
        .collect();
    all.sort_unstable();
    let mut expected = [expected, &["model", "asya-runtime", "asya-sidecar"]].concat();
    expected.sort_unstable();
    assert_eq!(all, expected, "{what}");
    let mut volumes = names(after, "volumes");
    let count = volumes.len();
    volumes.sort_unstable();
    volumes.dedup();
    assert_eq!(volumes.len(), count, "{what}");

    let alone = injected(actor, before);
    for name in ["asya-runtime", "asya-sidecar"] {
        let (mut found, alone) = (container(after, name).clone(), container(&alone, name));
        // added by Vault
        let mounts = found["volumeMounts"].as_array_mut().unwrap();
        mounts.retain(|it| it["name"] != "vault-secrets");
        // the port is taken by Dapr
        for entry in found["env"].as_array_mut().unwrap() {
            if entry["name"] == "ASYA_METRICS_ADDR" && entry["value"] == ":18081" {
                assert!(has(after, "daprd"), "{what}");
                entry["value"] = json!(":18080");
            }
        }
        assert_eq!(&found, alone, "{what}: {name}");
    }
    let decision = review(actor, after);
    assert_eq!(decision.reason, InjectionReason::AlreadyInjected, "{what}");
}

fn added_by(injector: Injector) -> Vec<String> {
    let mut with = pod(&json!({}));
    injector(&mut with);
    let all = ["containers", "initContainers"].map(|list| names(&with, list));
    let all = all.into_iter().flatten().filter(|it| *it != "model");
    all.map(str::to_owned).collect()
}

/// INJ-12
#[test]
fn each_injector_coexists_with_the_webhook_in_either_order() {
    for actor in actors() {
        let before = pod(&json!({}));
        for (name, injector) in INJECTORS {
            let added = added_by(injector);
            let added: Vec<&str> = added.iter().map(String::as_str).collect();
            // ours first
            let mut pod = injected(&actor, &before);
            injector(&mut pod);
            let first = names(&pod, "containers")[0].to_owned();
            for _ in 0..2 {
                pod = reviewed(&actor, &pod);
                injector(&mut pod);
            }
            pod = reviewed(&actor, &pod);
            assert_eq!(names(&pod, "containers")[0], first, "{name} after ours");
            check(&actor, &before, &pod, &added, &format!("{name} after ours"));

            // theirs first
            let mut pod = before.clone();
            injector(&mut pod);
            let first = names(&pod, "containers")[0].to_owned();
            pod = injected(&actor, &pod);
            for _ in 0..2 {
                injector(&mut pod);
                pod = reviewed(&actor, &pod);
            }
            assert_eq!(names(&pod, "containers")[0], first, "{name} before ours");
            check(
                &actor,
                &before,
                &pod,
                &added,
                &format!("{name} before ours"),
            );
        }
    }
}

/// INJ-12
#[test]
fn all_injectors_coexist_with_the_webhook_at_any_position() {
    let all = [istio, linkerd, vault, otel, dapr, kserve] as [Injector; 6];
    for actor in actors() {
        let before = pod(&json!({}));
        let added: Vec<String> = all.iter().flat_map(|it| added_by(*it)).collect();
        let added: Vec<&str> = added.iter().map(String::as_str).collect();
        // every rotation, with ours at every position
        for start in 0..all.len() {
            for place in 0..=all.len() {
                let mut pod = before.clone();
                for at in 0..=all.len() {
                    if at == place {
                        pod = injected(&actor, &pod);
                    }
                    if at < all.len() {
                        all[(start + at) % all.len()](&mut pod);
                    }
                }
                // reinvoke all of them
                let first = names(&pod, "containers")[0].to_owned();
                for injector in all {
                    injector(&mut pod);
                }
                pod = reviewed(&actor, &pod);
                assert_eq!(names(&pod, "containers")[0], first);
                check(
                    &actor,
                    &before,
                    &pod,
                    &added,
                    &format!("start {start}, ours at {place}"),
                );
            }
        }
    }
}
