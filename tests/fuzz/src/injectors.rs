//! Other injectors, each represented by the shape of its result (INJ-12).

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "only tests call this, with pods"
)]

use serde_json::{Value, json};

/// Names in a list of the pod's spec.
fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    let items = pod["spec"][list].as_array().into_iter().flatten();
    items.filter_map(|it| it["name"].as_str()).collect()
}

/// Adds what an injector adds. Like the real injectors, it does nothing if the pod is already injected.
pub type Injector = fn(&mut Value);

fn list<'a>(pod: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    let spec = pod["spec"].as_object_mut().unwrap();
    let list = spec.entry(name).or_insert(json!([]));
    list.as_array_mut().unwrap()
}

/// Whether the pod has a container of this name.
#[must_use]
pub fn has(pod: &Value, name: &str) -> bool {
    ["containers", "initContainers"]
        .iter()
        .any(|list| names(pod, list).contains(&name))
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

/// Istio, with its proxy first.
pub fn istio(pod: &mut Value) {
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

/// Istio, with its proxy as a native sidecar.
pub fn istio_native(pod: &mut Value) {
    if has(pod, "istio-proxy") {
        return;
    }
    let mut native = proxy();
    native["restartPolicy"] = json!("Always");
    list(pod, "initContainers").insert(0, native);
    volume(pod, "istio-envoy");
}

/// Linkerd.
pub fn linkerd(pod: &mut Value) {
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

/// Vault: mounts its secrets into every container, on reinvocation also into containers added since.
pub fn vault(pod: &mut Value) {
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

/// The `OpenTelemetry` collector.
pub fn otel(pod: &mut Value) {
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

/// Dapr.
pub fn dapr(pod: &mut Value) {
    if !has(pod, "daprd") {
        list(pod, "containers").push(daprd());
    }
}

/// Dapr, as a native sidecar.
pub fn dapr_native(pod: &mut Value) {
    if !has(pod, "daprd") {
        let mut native = daprd();
        native["restartPolicy"] = json!("Always");
        list(pod, "initContainers").push(native);
    }
}

/// KServe's storage initializer.
pub fn kserve(pod: &mut Value) {
    if has(pod, "storage-initializer") {
        return;
    }
    let init = json!({"name": "storage-initializer", "image": "kserve/storage-initializer", "args": ["s3://m", "/mnt/models"]});
    list(pod, "initContainers").push(init);
    volume(pod, "kserve-provision-location");
}

/// All injectors, by name.
pub const ALL: [(&str, Injector); 8] = [
    ("istio", istio),
    ("istio native", istio_native),
    ("linkerd", linkerd),
    ("vault", vault),
    ("otel", otel),
    ("dapr", dapr),
    ("dapr native", dapr_native),
    ("kserve", kserve),
];
