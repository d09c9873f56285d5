//! The sidecar in a pod of a binding.

use serde_json::{Value, json};

use crate::config::testing::parse;
use crate::inject::bound::testing::{
    Binding, container, env, env_lines, hash_of, injected, injected_pod, names, pod,
};

/// BIND-24
#[test]
fn sidecar_has_the_common_environment_and_its_own_metrics_port() {
    let pod =
        injected_pod(&json!({"sidecar": {"env": [{"name": "ASYA_LOG_LEVEL", "value": "debug"}]}}));
    let env = env_lines(&pod, "asya-sidecar");
    for line in [
        "ASYA_LOG_LEVEL=debug",
        "ASYA_ACTOR_NAME=embed",
        "ASYA_SOCKET_DIR=/var/run/asya",
        "ASYA_METRICS_ADDR=:18080",
        "ASYA_RUNTIME_READY_TIMEOUT=1h",
        "ASYA_RUNTIME_TIMEOUT=300s",
        "ASYA_TRANSPORT=rabbitmq",
    ] {
        assert!(env.contains(&line.to_owned()), "{line} in {env:?}");
    }
    let sidecar = container(&pod, "asya-sidecar");
    assert_eq!(
        sidecar["image"],
        *Binding::new(&json!({})).settings.own_sidecar_image
    );
    // A restart could be blamed on the model (BIND-25).
    assert_eq!(sidecar["livenessProbe"], Value::Null);
}

/// SC-111, BIND-24
#[test]
fn sidecar_has_the_grace_period_of_its_pod_without_restarting_pods() {
    let actor = Binding::new(&json!({})).actor();
    for (seconds, expected) in [(30, None), (120, Some("120s")), (0, Some("1s"))] {
        let after = injected(
            &actor,
            &pod(&json!({"terminationGracePeriodSeconds": seconds})),
        );
        assert_eq!(env(&after, "asya-sidecar", "ASYA_GRACE_PERIOD"), expected);
    }
    let pods = [30, 120].map(|it| pod(&json!({"terminationGracePeriodSeconds": it})));
    let [one, other] = pods.map(|pod| injected(&actor, &pod)["metadata"]["annotations"].clone());
    assert_eq!(one["asya.sh/injected-hash"], other["asya.sh/injected-hash"]);
}

/// POD-3, SC-111
#[test]
fn private_ca_of_the_broker_is_mounted_if_its_secret_exists_and_is_part_of_the_actors_hash() {
    let mut binding = Binding::new(&json!({}));
    let before = hash_of(&binding.actor()).0;
    binding.transports = parse(
        &json!({"rabbit": {"type": "rabbitmq", "enabled": true, "config": {
            "host": "broker", "tls": true, "caSecretRef": {"name": "broker-ca", "key": "ca.pem"},
        }}}),
    )
    .unwrap();
    let after = injected(&binding.actor(), &pod(&json!({})));
    let volumes = after["spec"]["volumes"].as_array().unwrap();
    let volume = volumes
        .iter()
        .find(|it| it["name"] == "asya-broker-ca")
        .unwrap();
    assert_eq!(volume["secret"]["secretName"], "broker-ca");
    assert_eq!(
        volume["secret"]["items"],
        json!([{"key": "ca.pem", "path": "ca.crt"}])
    );
    assert_eq!(volume["secret"]["optional"], true);
    let file = env(&after, "asya-sidecar", "ASYA_RABBITMQ_CA_FILE");
    assert_eq!(file, Some("/etc/asya/broker-ca/ca.crt"));
    let mounts = container(&after, "asya-sidecar")["volumeMounts"].clone();
    let mounts = mounts.as_array().unwrap();
    assert!(
        mounts
            .iter()
            .any(|it| it["mountPath"] == "/etc/asya/broker-ca"),
        "{mounts:?}"
    );
    assert_ne!(hash_of(&binding.actor()).0, before);
}

/// API-3
#[test]
fn both_containers_get_the_concurrency() {
    let concurrency = |spec: &Value| {
        let after = injected(&Binding::new(spec).actor(), &pod(&json!({})));
        ["asya-runtime", "asya-sidecar"]
            .map(|name| env(&after, name, "ASYA_CONCURRENCY").map(str::to_owned))
    };
    let both = |number: &str| [Some(number.to_owned()), Some(number.to_owned())];
    let handler = |name: &str| json!({"handler": format!("asya_adapters.{name}")});
    assert_eq!(
        concurrency(&json!({"runtime": handler("rest")})),
        [None, None]
    );
    assert_eq!(
        concurrency(&json!({"runtime": handler("openai_chat")})),
        both("8")
    );
    let chosen = json!({"runtime": handler("openai_chat"), "concurrency": 32});
    assert_eq!(concurrency(&chosen), both("32"));
    let own = json!({
        "runtime": handler("openai_chat"),
        "sidecar": {"env": [{"name": "ASYA_CONCURRENCY", "value": "2"}]},
    });
    assert_eq!(
        concurrency(&own),
        [Some("8".to_owned()), Some("2".to_owned())]
    );
}

/// API-3, ROLL-8 (a)
#[test]
fn setting_the_concurrency_restarts_pods_but_its_default_does_not() {
    let actor_hash = |spec: &Value| hash_of(&Binding::new(spec).actor()).0;
    assert_ne!(
        actor_hash(&json!({})),
        actor_hash(&json!({"concurrency": 1}))
    );
    assert_ne!(
        actor_hash(&json!({"concurrency": 8})),
        actor_hash(&json!({"concurrency": 1}))
    );
}

/// BIND-24
#[test]
fn metrics_use_the_next_port_that_no_container_declares() {
    let actor = Binding::new(&json!({})).actor();
    let taken = pod(&json!({
        "containers": [
            {"name": "model", "image": "m", "ports": [{"containerPort": 8090}, {"containerPort": 18080}]},
        ],
        "initContainers": [{"name": "proxy", "image": "p", "ports": [{"containerPort": 1, "hostPort": 18081}]}],
    }));
    let after = injected(&actor, &taken);
    assert_eq!(
        env(&after, "asya-sidecar", "ASYA_METRICS_ADDR"),
        Some(":18082")
    );
    let own = json!({"sidecar": {"env": [{"name": "ASYA_METRICS_ADDR", "value": ":9999"}]}});
    let after = injected(&Binding::new(&own).actor(), &taken);
    assert_eq!(
        env(&after, "asya-sidecar", "ASYA_METRICS_ADDR"),
        Some(":9999")
    );
}

/// BIND-20
#[test]
fn native_sidecar_is_the_last_init_container() {
    let actor = Binding::new(&json!({"sidecar": {"native": true}})).actor();
    let before = pod(&json!({"initContainers": [{"name": "download", "image": "d"}]}));
    let after = injected(&actor, &before);
    assert_eq!(
        names(&after, "initContainers"),
        ["download", "asya-sidecar"]
    );
    assert_eq!(names(&after, "containers"), ["model", "asya-runtime"]);
    assert_eq!(container(&after, "asya-sidecar")["restartPolicy"], "Always");
}

/// BIND-28, SA-1
#[test]
fn role_adds_a_token_to_the_sidecar() {
    let role = "arn:aws:iam::1:role/r";
    let mut binding = Binding::new(&json!({"transport": "cloud"}));
    binding.role_arn = Some(role);
    let after = injected(
        &binding.actor(),
        &pod(&json!({"serviceAccountName": "model"})),
    );
    assert_eq!(after["spec"]["serviceAccountName"], "model");
    assert_eq!(env(&after, "asya-sidecar", "AWS_ROLE_ARN"), Some(role));
    assert_eq!(
        env(&after, "asya-sidecar", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        Some("/var/run/secrets/asya.sh/role/token")
    );
    assert_eq!(env(&after, "asya-runtime", "AWS_ROLE_ARN"), None);
    let volumes = after["spec"]["volumes"].as_array().unwrap();
    let token = volumes
        .iter()
        .find(|it| it["name"] == "asya-role-token")
        .unwrap();
    assert_eq!(
        token["projected"]["sources"][0]["serviceAccountToken"]["audience"],
        "sts.amazonaws.com"
    );
    let mounts = container(&after, "asya-sidecar")["volumeMounts"].to_string();
    assert!(mounts.contains(r#""mountPath":"/var/run/secrets/asya.sh/role""#));

    binding.role_arn = None;
    let after = injected(&binding.actor(), &pod(&json!({})));
    assert!(!names(&after, "volumes").contains(&"asya-role-token"));
}
