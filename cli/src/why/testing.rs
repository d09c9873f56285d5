//! Random actors and pods for tests, generated from seeds.

use asya_fuzz::{injectors, pods};
use asya_shared::admission::facts::WebhookFacts;
use asya_shared::config::{Settings, TransportsConfig};
use asya_webhook::offline::{ReviewContext, Webhook};
use fastrand::Rng;
use serde_json::{Value, json};

use super::KnownActor;
use crate::installation::Installation;

pub const NAMESPACE: &str = "models";
pub const OPERATOR_NAMESPACE: &str = "asya-system";

/// An operator with one transport, `mq`.
pub fn installation() -> Installation {
    let transports = json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "b"}}}});
    Installation {
        transports: TransportsConfig::parse(&transports.to_string()).unwrap(),
        settings: Settings::parse(None, None, None).unwrap(),
        facts: WebhookFacts {
            scripts: Some("0123456789abcdef".to_owned()),
            ..WebhookFacts::default()
        },
    }
}

/// An actor that binds Deployment `phi`, with these fields in its spec.
pub fn actor(name: &str, spec: &Value) -> Value {
    let mut actor = json!({
        "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-05-04T10:00:00Z",
        },
        "spec": {
            "transport": "mq",
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "phi"},
        },
    });
    let fields = spec.as_object().unwrap().clone();
    actor["spec"].as_object_mut().unwrap().extend(fields);
    actor
}

/// Specs of bindings whose pods differ.
pub fn specs() -> [Value; 5] {
    [
        json!({}),
        json!({"binding": {"required": true}}),
        json!({"sidecar": {"native": true, "env": [{"name": "A", "value": "b"}]}}),
        json!({"runtime": {"targetURL": "http://127.0.0.1:5000", "env": [{"name": "X", "value": "$$"}]}}),
        json!({"runtime": {"resources": {"limits": {"cpu": "100m"}}}, "timeout": {"gracefulShutdown": 60}}),
    ]
}

/// The namespace's actors: bindings, and each kind of actor that does not inject.
pub fn actors(rng: &mut Rng) -> Vec<Value> {
    let specs = specs();
    let mut first = actor("embed", rng.choice(&specs).unwrap());
    first["status"] = json!({"boundSince": "2026-05-04T10:00:01Z"});
    match rng.u8(..12) {
        0 => return Vec::new(),
        1 => first["status"] = json!({}),
        2 => first["metadata"]["deletionTimestamp"] = json!("2026-05-05T10:00:00Z"),
        3 => first["spec"]["transport"] = json!("unknown"),
        4 => first["spec"]["binding"] = json!({"strategy": "Template"}),
        5 => first["status"]["injection"] = json!({"proved": "another"}),
        6 => {
            let mut second = actor("older", rng.choice(&specs).unwrap());
            second["metadata"]["creationTimestamp"] = json!("2026-05-03T10:00:00Z");
            second["status"] = first["status"].clone();
            return vec![first, second];
        }
        7 => first["spec"] = json!({"transport": 7, "workloadRef": {}}),
        _ => {}
    }
    vec![first]
}

/// A pod of Deployment `phi`.
pub fn plain_pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "phi-5d8f7c-",
            "labels": {"app": "phi", "pod-template-hash": "5d8f7c"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "phi-5d8f7c", "uid": "u", "controller": true,
            }],
        },
        "spec": {
            "containers": [{"name": "model", "image": "me/model:1", "ports": [{"containerPort": 8090}]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    })
}

/// A random pod: of the Deployment or not, already changed by another injector or not, usable or not.
pub fn any_pod(rng: &mut Rng) -> Value {
    let mut pod = pods::pod(rng, plain_pod());
    match rng.u8(..16) {
        0 => pod["metadata"]["ownerReferences"] = json!([]),
        1 => pod["metadata"]["ownerReferences"][0]["name"] = json!("other-5d8f7c"),
        2 => pod["metadata"]["labels"]["asya.sh/inject"] = json!("false"),
        3 => pod["spec"]["restartPolicy"] = json!("Never"),
        4 => pod["spec"]["os"] = json!({"name": "windows"}),
        5 => pod["spec"] = json!({}),
        6 => pod["spec"]["initContainers"] = json!([{"name": "asya-runtime", "image": "x"}]),
        7..=9 => {
            // Its other fields may be null, which an injector does not expect.
            pod = plain_pod();
            rng.choice(injectors::ALL).unwrap().1(&mut pod);
        }
        _ => {}
    }
    pod
}

/// A webhook that knows these actors.
pub fn webhook(installation: &Installation, namespace: &str, actors: &[Value]) -> Webhook {
    let knowledge = ReviewContext {
        transports: &installation.transports,
        settings: &installation.settings,
        scripts_hash: installation.facts.scripts.as_deref().unwrap_or_default(),
        operator_namespace: OPERATOR_NAMESPACE,
        namespace,
        clusters: None,
    };
    let known = |actor: &Value| KnownActor::new(actor.clone()).actor;
    Webhook::new(&knowledge, actors.iter().filter_map(known))
}
