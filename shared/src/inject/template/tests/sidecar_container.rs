use serde_json::json;

use super::Value;
use crate::config::Settings;
use crate::config::testing::transport;
use crate::inject::testing::Fixture;

/// POD-1
#[test]
fn sidecar_comes_last_with_image_resources_port_and_security_context() {
    let helper = json!({"name": "helper", "image": "busybox:1"});
    let template =
        json!({"spec": {"containers": [helper, {"name": "asya-runtime", "image": "i"}]}});
    let fixture = Fixture::with_template(&template);
    let names: Vec<Value> = fixture.template()["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(names, ["helper", "asya-runtime", "asya-sidecar"]);

    let mut sidecar = fixture.container("asya-sidecar");
    sidecar.as_object_mut().unwrap().remove("env");
    assert_eq!(
        sidecar,
        json!({
            "name": "asya-sidecar",
            "image": fixture.settings.own_sidecar_image,
            "imagePullPolicy": "IfNotPresent",
            "livenessProbe": {
                "httpGet": {"path": "/healthz", "port": "asya-metrics"},
                "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6,
            },
            "ports": [{"name": "asya-metrics", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": "socket-dir", "mountPath": "/var/run/asya"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        })
    );
}

/// POD-1, SC-113
#[test]
fn only_our_own_sidecar_with_its_default_listener_has_a_liveness_probe() {
    let env = |name: &str| json!({"env": [{"name": name, "value": ""}]});
    for (sidecar, probed) in [
        (json!({}), true),
        (json!({"image": "asya-sidecar:latest"}), false),
        (env("ASYA_METRICS_ADDR"), false),
        (env("ASYA_METRICS_ENABLED"), false),
        (env("ASYA_LOG_LEVEL"), true),
        (json!({"native": true}), true),
    ] {
        let fixture = Fixture::new(&json!({"sidecar": sidecar}));
        let container = fixture.container("asya-sidecar");
        assert_eq!(
            container.get("livenessProbe").is_some(),
            probed,
            "{sidecar}"
        );
    }
}

/// POD-1
#[test]
fn sidecar_listens_where_no_other_container_does() {
    let port = |number: u16| json!([{"containerPort": number}]);
    let default = json!([{"name": "asya-metrics", "containerPort": 8080, "protocol": "TCP"}]);
    let other = json!([{"name": "asya-metrics", "containerPort": 18080, "protocol": "TCP"}]);
    let next = json!([{"name": "asya-metrics", "containerPort": 18081, "protocol": "TCP"}]);
    let helper = |ports: Value| json!({"name": "helper", "image": "h", "ports": ports});
    let moved = json!({"env": [{"name": "ASYA_METRICS_ADDR", "value": ":9000"}]});
    let both = json!([{"containerPort": 8080}, {"containerPort": 18080}]);
    for (list, extra, sidecar, ports, address) in [
        ("containers", helper(port(80)), json!({}), &default, None),
        (
            "containers",
            helper(port(8080)),
            json!({}),
            &other,
            Some(":18080"),
        ),
        ("containers", helper(both), json!({}), &next, Some(":18081")),
        (
            "initContainers",
            helper(port(8080)),
            json!({}),
            &other,
            Some(":18080"),
        ),
        (
            "containers",
            helper(port(8080)),
            json!({"image": "theirs:1"}),
            &other,
            Some(":18080"),
        ),
        (
            "containers",
            helper(port(8080)),
            moved,
            &default,
            Some(":9000"),
        ),
    ] {
        let mut template = json!({"spec": {"initContainers": [], "containers": [{"name": "asya-runtime", "image": "i"}]}});
        template["spec"][list].as_array_mut().unwrap().push(extra);
        let fixture =
            Fixture::new(&json!({"sidecar": sidecar, "workload": {"template": template}}));
        assert_eq!(
            &fixture.container("asya-sidecar")["ports"],
            ports,
            "{template}"
        );
        let variable = fixture.variable("ASYA_METRICS_ADDR");
        assert_eq!(variable.as_deref(), address, "{template}");
    }
}

/// SC-111, POD-10
#[test]
fn sidecar_has_as_long_to_end_as_its_pod() {
    let graceful = |seconds: u32| Fixture::new(&json!({"timeout": {"gracefulShutdown": seconds}}));
    assert_eq!(graceful(30).variable("ASYA_GRACE_PERIOD"), None);
    assert_eq!(
        graceful(600).variable("ASYA_GRACE_PERIOD").as_deref(),
        Some("600s")
    );
    let containers = json!([{"name": "asya-runtime", "image": "i"}]);
    let own = json!({"spec": {"terminationGracePeriodSeconds": 90, "containers": containers}});
    let own = Fixture::with_template(&own);
    assert_eq!(own.variable("ASYA_GRACE_PERIOD").as_deref(), Some("90s"));
    let at_once = json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": containers}});
    let at_once = Fixture::with_template(&at_once);
    assert_eq!(at_once.variable("ASYA_GRACE_PERIOD").as_deref(), Some("1s"));
    let other = json!({"timeout": {"gracefulShutdown": 600}, "sidecar": {"image": "theirs:1"}});
    assert_eq!(Fixture::new(&other).variable("ASYA_GRACE_PERIOD"), None);
}

/// QUE-1, SC-3, SC-112
#[test]
fn routes_name_actors_by_queue_or_bare() {
    let queues = |queues: Value| {
        let mut fixture = Fixture::new(&json!({}));
        fixture.transport = transport("rabbitmq", &json!({"host": "broker", "queues": queues}));
        fixture
    };
    let template = "asya-{namespace}-{actor}";
    for (settings, actor, end, namespace, named) in [
        (json!({}), "foo", "error-end", None, None),
        (
            json!({"nameTemplate": template}),
            "team-a-foo",
            "team-a-error-end",
            None,
            None,
        ),
        (
            json!({"nameTemplate": template, "names": "Bare"}),
            "foo",
            "error-end",
            Some("team-a"),
            None,
        ),
        (
            json!({"names": "Bare"}),
            "foo",
            "error-end",
            Some("team-a"),
            Some("asya-{actor}"),
        ),
    ] {
        let fixture = queues(settings.clone());
        let variable = |name: &str| fixture.variable(name);
        assert_eq!(
            variable("ASYA_ACTOR_NAME").as_deref(),
            Some(actor),
            "{settings}"
        );
        assert_eq!(
            variable("ASYA_ACTOR_ERROR_END").as_deref(),
            Some(end),
            "{settings}"
        );
        assert_eq!(
            variable("ASYA_NAMESPACE").as_deref(),
            namespace,
            "{settings}"
        );
        assert_eq!(
            variable("ASYA_QUEUE_TEMPLATE").as_deref(),
            named,
            "{settings}"
        );
    }
    let mut overridden = queues(json!({"names": "Bare"}));
    overridden.spec.sidecar =
        serde_json::from_value(json!({"env": [{"name": "ASYA_NAMESPACE", "value": "x"}]})).unwrap();
    assert_eq!(
        overridden.variable("ASYA_NAMESPACE").as_deref(),
        Some("team-a")
    );
}

/// POD-3, SC-111
#[test]
fn virtual_host_tls_and_private_ca_reach_the_sidecar() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.transport = transport(
        "rabbitmq",
        &json!({
            "host": "broker", "vhost": "a/b", "tls": true, "caSecretRef": {"name": "ca", "key": "ca.pem"},
        }),
    );
    for (name, expected) in [
        ("ASYA_RABBITMQ_VHOST", "a/b"),
        ("ASYA_RABBITMQ_TLS", "true"),
        ("ASYA_RABBITMQ_CA_FILE", "/etc/asya/broker-ca/ca.crt"),
    ] {
        assert_eq!(fixture.variable(name).as_deref(), Some(expected));
    }
    let volumes = fixture.template()["spec"]["volumes"]
        .as_array()
        .unwrap()
        .clone();
    let names: Vec<_> = volumes
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["socket-dir", "tmp", "asya-runtime", "asya-broker-ca"]
    );
}

/// POD-1
#[test]
fn sidecar_settings_of_the_actor_override_the_operators() {
    let resources = json!({"requests": {"cpu": 1}});
    let mut fixture = Fixture::new(&json!({"sidecar": {
        "image": "mine", "imagePullPolicy": "Always", "resources": resources, "securityContext": {"runAsUser": 7},
    }}));
    let configured = || {
        Settings::parse(
            None,
            Some("theirs".to_owned()),
            Some(r#"{"limits":{"cpu":"2"}}"#),
        )
        .unwrap()
    };
    fixture.settings = configured();
    let sidecar = fixture.container("asya-sidecar");
    assert_eq!(
        (&sidecar["image"], &sidecar["imagePullPolicy"]),
        (&json!("mine"), &json!("Always"))
    );
    assert_eq!(
        (&sidecar["resources"], &sidecar["securityContext"]),
        (&resources, &json!({"runAsUser": 7}))
    );

    for spec in [
        json!({}),
        json!({"sidecar": {"image": "", "resources": {}}}),
    ] {
        let mut fixture = Fixture::new(&spec);
        fixture.settings = configured();
        let sidecar = fixture.container("asya-sidecar");
        assert_eq!(
            (&sidecar["image"], &sidecar["resources"]),
            (&json!("theirs"), &json!({"limits": {"cpu": "2"}}))
        );
    }
}

/// POD-2, POD-3
#[test]
fn sidecar_environment_has_a_fixed_order() {
    let fixture = Fixture::new(&json!({"sidecar": {"env": [{"name": "MINE", "value": "1"}]}}));
    assert_eq!(
        fixture.env("asya-sidecar"),
        [
            "ASYA_LOG_LEVEL=info",
            "ASYA_GATEWAY_URL=",
            "ASYA_ACTOR_NAME=foo",
            "ASYA_ACTOR_HAPPY_END=happy-end",
            "ASYA_ACTOR_ERROR_END=error-end",
            "ASYA_RUNTIME_TIMEOUT=300s",
            "ASYA_TRANSPORT=rabbitmq",
            "ASYA_RABBITMQ_HOST=broker",
            "ASYA_RABBITMQ_PORT=5672",
            "ASYA_RABBITMQ_USERNAME=guest",
            "ASYA_RABBITMQ_EXCHANGE=asya",
            "ASYA_QUEUE_AUTO_CREATE=true",
            "ASYA_QUEUE_RETRY_MAX_ATTEMPTS=1",
            "ASYA_SOCKET_DIR=/var/run/asya",
            "MINE=1",
        ]
    );
}

/// POD-2, POD-4
#[test]
fn sidecar_environment_follows_the_transport() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.transport = transport("sqs", &json!({"region": "eu-west-1"}));
    let env = fixture.env("asya-sidecar");
    assert_eq!(
        env[6..],
        [
            "ASYA_TRANSPORT=sqs",
            "ASYA_AWS_REGION=eu-west-1",
            "ASYA_SOCKET_DIR=/var/run/asya"
        ]
    );
}

/// POD-2, QUE-1
#[test]
fn sidecar_gets_the_names_of_its_queues() {
    let mut fixture = Fixture::new(&json!({}));
    fixture.transport = transport(
        "sqs",
        &json!({"queues": {"nameTemplate": "asya-{namespace}-{actor}"}}),
    );
    let env = fixture.env("asya-sidecar");
    assert_eq!(
        env[2..5],
        [
            "ASYA_ACTOR_NAME=team-a-foo",
            "ASYA_ACTOR_HAPPY_END=team-a-happy-end",
            "ASYA_ACTOR_ERROR_END=team-a-error-end"
        ]
    );
}

/// POD-2
#[test]
fn gateway_of_the_operator_takes_precedence_over_that_of_the_runtime() {
    let of_secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let cases = [
        (
            Some("http://op"),
            json!([{"name": "ASYA_GATEWAY_URL", "value": "http://mine"}]),
            "ASYA_GATEWAY_URL=http://op",
        ),
        (
            None,
            json!([{"name": "ASYA_GATEWAY_URL", "value": "http://mine"}]),
            "ASYA_GATEWAY_URL=http://mine",
        ),
        (
            None,
            json!([{"name": "ASYA_GATEWAY_URL", "valueFrom": of_secret}]),
            "ASYA_GATEWAY_URL<s/k",
        ),
        (
            None,
            json!([{"name": "ASYA_GATEWAY_URL", "value": "a"}, {"name": "ASYA_GATEWAY_URL", "value": "b"}]),
            "ASYA_GATEWAY_URL=b",
        ),
        (None, json!([]), "ASYA_GATEWAY_URL="),
    ];
    for (operator, env, expected) in cases {
        let mut fixture = Fixture::with_runtime(&json!({"env": env}));
        fixture.settings.gateway_url = operator.map(str::to_owned);
        assert_eq!(fixture.env("asya-sidecar")[1], expected);
    }
}

/// POD-2
#[test]
fn only_end_actors_are_marked_as_such() {
    for (actor, is_end) in [
        ("happy-end", true),
        ("error-end", true),
        ("foo", false),
        ("happy-end-2", false),
    ] {
        let mut fixture = Fixture::new(&json!({}));
        fixture.actor = actor;
        assert_eq!(
            fixture
                .env("asya-sidecar")
                .contains(&"ASYA_IS_END_ACTOR=true".to_owned()),
            is_end,
            "{actor}"
        );
    }
}

/// POD-2
#[test]
fn missing_timeout_sets_no_variable() {
    let limit = |processing: i32| {
        let fixture = Fixture::new(&json!({"timeout": {"processing": processing}}));
        fixture
            .env("asya-sidecar")
            .into_iter()
            .find(|line| line.starts_with("ASYA_RUNTIME_TIMEOUT"))
    };
    assert_eq!(limit(120).as_deref(), Some("ASYA_RUNTIME_TIMEOUT=120s"));
    assert_eq!(limit(0), None);
}

/// POD-7
#[test]
fn sidecar_env_overrides_all_but_reserved_names() {
    let fixture = Fixture::new(&json!({"sidecar": {"env": [
        {"name": "ASYA_LOG_LEVEL", "value": "debug"},
        {"name": "ASYA_ACTOR_NAME", "value": "other"},
        {"name": "ASYA_SOCKET_DIR", "value": "/other"},
        {"name": "TWICE", "value": "1"},
        {"name": "TWICE", "value": "2"},
    ]}}));
    let env = fixture.env("asya-sidecar");
    assert_eq!(env[0], "ASYA_LOG_LEVEL=debug");
    for (line, expected) in [
        ("ASYA_ACTOR_NAME=foo", true),
        ("ASYA_ACTOR_NAME=other", false),
        ("ASYA_SOCKET_DIR=/var/run/asya", true),
        ("ASYA_SOCKET_DIR=/other", false),
        ("TWICE=1", false),
        ("TWICE=2", true),
    ] {
        assert_eq!(env.contains(&line.to_owned()), expected, "{line}");
    }
}

/// POD-11
#[test]
fn native_sidecar_is_the_same_container_as_an_init_container() {
    let template = json!({"spec": {
        "initContainers": [{"name": "warm", "image": "busybox:1"}],
        "containers": [{"name": "asya-runtime", "image": "i"}],
    }});
    let spec =
        |native: bool| json!({"sidecar": {"native": native}, "workload": {"template": template}});
    let plain = Fixture::new(&spec(false)).container("asya-sidecar");
    let native = Fixture::new(&spec(true));
    let mut expected = plain;
    expected["restartPolicy"] = json!("Always");
    let rendered = native.template();
    assert_eq!(rendered["spec"]["initContainers"][1], expected);
    assert_eq!(
        rendered["spec"]["initContainers"].as_array().unwrap().len(),
        2
    );
    assert_eq!(rendered["spec"]["containers"].as_array().unwrap().len(), 1);
}
