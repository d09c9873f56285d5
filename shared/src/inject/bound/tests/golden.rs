//! The actor hash, as pods of earlier versions carry it: a changed value restarts every bound model when
//! the operator is upgraded (ROLL-8, SAFE-35). If one of these tests fails, implement the change differently: what is
//! new and not requested by an actor or its transport belongs in the platform hash, and what can be requested belongs
//! in a key that is absent until it is.

use serde_json::{Value, json};

use crate::config::testing::parse;
use crate::inject::bound::plan::hashed_variables;
use crate::inject::bound::testing::{Binding, hash_of};
use crate::transport::text;

fn of(spec: &Value, config: &Value) -> String {
    let mut all = json!({"transport": "used"});
    let fields = spec.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    let mut binding = Binding::new(&all);
    binding.transports = parse(&json!({"used": config})).unwrap();
    hash_of(&binding.actor()).0
}

fn rabbitmq(config: &Value) -> Value {
    json!({"type": "rabbitmq", "enabled": true, "config": config})
}

fn sqs(config: &Value) -> Value {
    json!({"type": "sqs", "enabled": true, "config": config})
}

/// SAFE-35, ROLL-8 (a)
#[test]
fn hash_that_restarts_bound_pods_is_the_same_in_every_release() {
    let secret = |name: &str| json!({"name": name, "key": "k"});
    let plain = json!({});
    let everything = json!({
        "timeout": {"processing": 60},
        "sidecar": {
            "image": "s:2", "imagePullPolicy": "Always", "native": true, "securityContext": {"runAsUser": 7},
            "env": [{"name": "A", "value": "b"}], "resources": {"requests": {"cpu": "1"}},
        },
        "runtime": {
            "image": "r:2", "handler": "a.b", "pythonExecutable": "python", "targetURL": "http://127.0.0.1:1",
            "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"memory": "1Gi"}},
        },
    });
    let isvc = json!({"workloadRef": {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "iris"}});
    let local = rabbitmq(&json!({"host": "broker"}));
    let secured = rabbitmq(&json!({
        "host": "broker", "port": 5671, "tls": true, "vhost": "team", "username": "u",
        "passwordSecretRef": secret("p"), "exchange": "x", "queues": {"autoCreate": false},
    }));
    let by_url = rabbitmq(&json!({"host": "broker", "urlSecretRef": secret("u")}));
    let region = sqs(&json!({"region": "eu-west-1"}));
    let keys = sqs(&json!({
        "region": "eu-west-1", "endpoint": "http://sqs", "visibilityTimeout": 60, "waitTimeSeconds": 5,
        "credentials": {"accessKeyIdSecretRef": secret("a"), "secretAccessKeySecretRef": secret("s")},
    }));
    let rows = [
        ("rabbitmq", &plain, &local, "3f6c56e57c958762"),
        (
            "rabbitmq, all fields",
            &everything,
            &local,
            "f083648eb7c0b662",
        ),
        ("rabbitmq, KServe", &isvc, &local, "dda8b1fd2ae708c5"),
        ("rabbitmq, TLS", &plain, &secured, "b46ffc66b16d1072"),
        ("rabbitmq, URL", &plain, &by_url, "7f08460462a86b73"),
        ("sqs", &plain, &region, "39a15726a2720437"),
        ("sqs, keys", &plain, &keys, "036f92800485950c"),
    ];
    let found = rows.map(|(what, spec, transport, _)| (what, of(spec, transport)));
    let golden = rows.map(|(what, _, _, golden)| (what, golden.to_owned()));
    assert_eq!(found, golden);
}

/// SAFE-35
#[test]
fn sidecar_variable_added_by_a_release_restarts_nothing() {
    let before = vec![
        text("ASYA_TRANSPORT", "rabbitmq"),
        text("ASYA_RABBITMQ_HOST", "broker"),
    ];
    let mut after = before.clone();
    after.insert(1, text("ASYA_NEXT_RELEASE", "on"));
    assert_eq!(hashed_variables(after), before);
}

/// Adding a variable requires a decision here: either it restarts nothing, or the user's value goes into the hash
/// (SAFE-35).
#[test]
fn every_transport_variable_is_hashed_or_excluded_explicitly() {
    const RESTART_NOTHING: [&str; 0] = [];
    let secret = |name: &str| json!({"name": name, "key": "k"});
    let rabbit = |more: &Value| {
        let mut config = json!({"host": "broker", "username": "u", "passwordSecretRef": secret("p"), "tls": true, "vhost": "v"});
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        rabbitmq(&config)
    };
    let all = [
        rabbit(&json!({})),
        rabbit(&json!({"urlSecretRef": secret("u")})),
        sqs(&json!({
            "region": "eu-west-1", "endpoint": "http://sqs", "visibilityTimeout": 60, "waitTimeSeconds": 5,
            "credentials": {"accessKeyIdSecretRef": secret("a"), "secretAccessKeySecretRef": secret("s")},
        })),
    ];
    for config in all {
        let transports = parse(&json!({"used": config})).unwrap();
        let env = transports.usable("used").unwrap().broker().sidecar_env();
        let counts = hashed_variables(env.clone());
        let left: Vec<_> = env.iter().filter(|it| !counts.contains(it)).collect();
        let surprising = left
            .iter()
            .filter(|it| !RESTART_NOTHING.contains(&&*it.name));
        assert_eq!(surprising.count(), 0, "{left:?}");
    }
}
