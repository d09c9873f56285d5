#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::*;
use crate::config::Transport;
use crate::config::testing::{rabbitmq, transport};
use crate::transport::testing::lines;

/// These settings in addition to the host.
fn with_host(config: &Value) -> Value {
    let mut config = config.clone();
    config["host"] = json!("broker");
    config
}

fn at_broker(config: &Value) -> RabbitmqConfig {
    rabbitmq(&with_host(config))
}

fn both(config: &Value) -> (Transport, RabbitmqConfig) {
    (transport("rabbitmq", &with_host(config)), at_broker(config))
}

/// POD-3
#[test]
fn sidecar_gets_the_rabbitmq_environment_in_order() {
    let config = at_broker(
        &json!({"passwordSecretRef": {"name": "s", "key": "k"}, "queues": {"autoCreate": false}}),
    );
    assert_eq!(
        lines(&config.sidecar_env()),
        [
            "ASYA_TRANSPORT=rabbitmq",
            "ASYA_RABBITMQ_HOST=broker",
            "ASYA_RABBITMQ_PORT=5672",
            "ASYA_RABBITMQ_USERNAME=guest",
            "ASYA_RABBITMQ_PASSWORD<s/k",
            "ASYA_RABBITMQ_EXCHANGE=asya",
            "ASYA_QUEUE_AUTO_CREATE=false",
            "ASYA_QUEUE_RETRY_MAX_ATTEMPTS=1",
        ]
    );
    let config = at_broker(&json!({}));
    assert!(
        !lines(&config.sidecar_env())
            .iter()
            .any(|line| line.contains("PASSWORD"))
    );
}

/// POD-3
#[test]
fn sidecar_gets_a_url_that_it_cannot_build_itself() {
    let url = |config: &Value| {
        lines(&at_broker(config).sidecar_env())
            .into_iter()
            .find(|line| line.starts_with("ASYA_RABBITMQ_URL"))
    };
    let password = json!({"name": "s", "key": "k"});
    let cases = [
        (json!({}), None),
        (json!({"port": 1, "username": "u"}), None),
        (
            json!({"tls": true, "passwordSecretRef": password}),
            Some(
                "=amqps://$(ASYA_RABBITMQ_USERNAME):$(ASYA_RABBITMQ_PASSWORD)@$(ASYA_RABBITMQ_HOST):$(ASYA_RABBITMQ_PORT)/%2F",
            ),
        ),
        (
            json!({"vhost": "a/b", "username": "u@$x"}),
            Some("=amqp://u%40%24x:guest@$(ASYA_RABBITMQ_HOST):$(ASYA_RABBITMQ_PORT)/a%2Fb"),
        ),
        (
            json!({"tls": true, "urlSecretRef": {"name": "url", "key": "amqp"}}),
            Some("<url/amqp"),
        ),
        (
            json!({"urlSecretRef": {"name": "url", "key": "amqp"}}),
            Some("<url/amqp"),
        ),
    ];
    for (config, expected) in cases {
        let shown = config.to_string();
        assert_eq!(
            url(&config),
            expected.map(|rest| format!("ASYA_RABBITMQ_URL{rest}")),
            "{shown}"
        );
    }
}

/// POD-3
#[test]
fn url_refers_only_to_earlier_variables() {
    let config = at_broker(&json!({"tls": true, "passwordSecretRef": {"name": "s", "key": "k"}}));
    let env = lines(&config.sidecar_env());
    let at = |name: &str| env.iter().position(|line| line.starts_with(name)).unwrap();
    for earlier in [
        "ASYA_RABBITMQ_USERNAME",
        "ASYA_RABBITMQ_PASSWORD",
        "ASYA_RABBITMQ_HOST",
        "ASYA_RABBITMQ_PORT",
    ] {
        assert!(at(earlier) < at("ASYA_RABBITMQ_URL"), "{earlier}");
    }
}

#[test]
fn configured_text_is_not_read_as_a_reference() {
    let config = at_broker(&json!({"username": "a$(HOME)"}));
    assert!(lines(&config.sidecar_env()).contains(&"ASYA_RABBITMQ_USERNAME=a$$(HOME)".to_owned()));
}

#[test]
fn optional_secret_stays_optional() {
    let config =
        at_broker(&json!({"passwordSecretRef": {"name": "s", "key": "k", "optional": true}}));
    let env = config.sidecar_env();
    let password = env
        .iter()
        .find(|entry| entry.name == "ASYA_RABBITMQ_PASSWORD")
        .unwrap();
    assert_eq!(
        password.source["valueFrom"]["secretKeyRef"],
        json!({"name": "s", "key": "k", "optional": true})
    );
}

pub fn declared(queues: &Value) -> QueueDeclaration {
    let (transport, config) = both(&json!({"queues": queues}));
    config.declaration(&transport.names_of("n", "foo"))
}

/// RMQ-3, RMQ-4
#[test]
fn rabbitmq_queue_is_durable_and_bound_by_both_keys() {
    let desired = declared(&json!({}));
    assert_eq!(desired.name, "asya-foo");
    assert_eq!(
        desired.body(),
        json!({"durable": true, "auto_delete": false, "arguments": {}})
    );
    assert_eq!(desired.exchange, "asya");
    assert_eq!(desired.routing_keys, ["foo", "asya-foo"]);
    assert_eq!(desired.dlq, None);
    let (transport, config) =
        both(&json!({"exchange": "mine", "queues": {"nameTemplate": "asya-{namespace}.{actor}"}}));
    let desired = config.declaration(&transport.names_of("n", "foo"));
    assert_eq!(
        (desired.exchange.as_str(), desired.routing_keys),
        ("mine", vec!["n.foo".to_owned(), "asya-n.foo".to_owned()])
    );
}

/// RMQ-5
#[test]
fn arguments_of_a_rabbitmq_queue_depend_on_dlq_and_type() {
    let dead = json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "asya-foo-dlq"});
    let with = |more: Value| {
        let mut all = dead.as_object().unwrap().clone();
        all.extend(more.as_object().unwrap().clone());
        Value::Object(all)
    };
    for (kind, dlq, expected) in [
        ("auto", false, json!({})),
        ("classic", false, json!({"x-queue-type": "classic"})),
        ("quorum", false, json!({"x-queue-type": "quorum"})),
        (
            "auto",
            true,
            with(json!({"x-queue-type": "quorum", "x-delivery-limit": 4})),
        ),
        ("classic", true, with(json!({"x-queue-type": "classic"}))),
        (
            "quorum",
            true,
            with(json!({"x-queue-type": "quorum", "x-delivery-limit": 4})),
        ),
    ] {
        let desired = declared(&json!({"type": kind, "dlq": {"enabled": dlq, "maxRetryCount": 4}}));
        assert_eq!(desired.body()["arguments"], expected, "{kind} {dlq}");
        assert_eq!(desired.dlq.is_some(), dlq);
    }
}

/// RMQ-5
#[test]
fn rabbitmq_dead_letter_queue_is_durable_and_expires_messages() {
    let dlq = |dlq: Value| declared(&json!({"dlq": dlq})).dlq.unwrap();
    let plain = dlq(json!({"enabled": true}));
    assert_eq!(plain.name, "asya-foo-dlq");
    assert_eq!(
        plain.body(),
        json!({"durable": true, "auto_delete": false, "arguments": {}})
    );
    let forgets = dlq(json!({"enabled": true, "retentionDays": 49}));
    assert_eq!(
        forgets.body()["arguments"],
        json!({"x-message-ttl": 4_233_600_000_u64})
    );
}

pub fn found(queue: &Value) -> FoundQueue {
    serde_json::from_value(queue.clone()).unwrap()
}

/// RMQ-3, RMQ-5
#[test]
#[expect(clippy::too_many_lines, reason = "one row per case")]
fn existing_rabbitmq_queue_matches_or_is_a_mismatch() {
    let dead = |more: Value| {
        let mut all =
            json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "asya-foo-dlq"});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all
    };
    let with_dlq = |kind: &str| json!({"type": kind, "dlq": {"enabled": true}});
    let plain = |kind: &str| json!({"type": kind});
    let queue = |arguments: Value, kind: &str| json!({"durable": true, "auto_delete": false, "arguments": arguments, "type": kind});
    let serves = |delivery_limit_inactive| Comparison::Matches {
        delivery_limit_inactive,
    };
    let differs = |desired: &str, found: &str| Comparison::Mismatch {
        desired: desired.to_owned(),
        found: found.to_owned(),
    };
    let no_dlq = r"x-dead-letter-exchange=none, x-dead-letter-routing-key=none";
    let cases = [
        (
            "as created",
            plain("auto"),
            queue(json!({}), "classic"),
            serves(false),
        ),
        (
            "other arguments are the user's",
            plain("auto"),
            queue(json!({"x-max-length": 5}), "classic"),
            serves(false),
        ),
        (
            "auto takes quorum",
            plain("auto"),
            queue(json!({"x-queue-type": "quorum"}), "quorum"),
            serves(false),
        ),
        (
            "auto does not take a stream",
            plain("auto"),
            queue(json!({}), "stream"),
            differs("type=classic or quorum", "type=stream"),
        ),
        (
            "explicit type kept",
            plain("classic"),
            queue(json!({}), "classic"),
            serves(false),
        ),
        (
            "explicit type differs",
            plain("quorum"),
            queue(json!({}), "classic"),
            differs("type=quorum", "type=classic"),
        ),
        (
            "explicit type differs, the other way",
            plain("classic"),
            queue(json!({}), "quorum"),
            differs("type=classic", "type=quorum"),
        ),
        (
            "old broker shows no type",
            plain("classic"),
            json!({"durable": true}),
            serves(false),
        ),
        (
            "old broker, type by argument",
            plain("classic"),
            json!({"durable": true, "arguments": {"x-queue-type": "quorum"}}),
            differs("type=classic", "type=quorum"),
        ),
        (
            "not durable",
            plain("auto"),
            json!({"durable": false, "auto_delete": false}),
            differs("durable=true", "durable=false"),
        ),
        (
            "auto-delete",
            plain("auto"),
            json!({"durable": true, "auto_delete": true}),
            differs("auto_delete=false", "auto_delete=true"),
        ),
        (
            "dead letters not wanted",
            plain("auto"),
            queue(dead(json!({})), "classic"),
            differs(
                no_dlq,
                "x-dead-letter-exchange=\"\", x-dead-letter-routing-key=\"asya-foo-dlq\"",
            ),
        ),
        (
            "dead letters missing",
            with_dlq("auto"),
            queue(json!({}), "quorum"),
            differs(
                "x-dead-letter-exchange=\"\", x-dead-letter-routing-key=\"asya-foo-dlq\"",
                no_dlq,
            ),
        ),
        (
            "dead letters elsewhere",
            with_dlq("auto"),
            queue(
                json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "x"}),
                "quorum",
            ),
            differs(
                "x-dead-letter-routing-key=\"asya-foo-dlq\"",
                "x-dead-letter-routing-key=\"x\"",
            ),
        ),
        (
            "quorum with dead letters",
            with_dlq("auto"),
            queue(
                dead(json!({"x-queue-type": "quorum", "x-delivery-limit": 3})),
                "quorum",
            ),
            serves(false),
        ),
        (
            "auto takes classic, without limit",
            with_dlq("auto"),
            queue(dead(json!({})), "classic"),
            serves(true),
        ),
        (
            "classic by wish has no limit",
            with_dlq("classic"),
            queue(dead(json!({})), "classic"),
            serves(true),
        ),
    ];
    for (case, desired, existing, expected) in cases {
        assert_eq!(
            declared(&desired).compare(&found(&existing)),
            expected,
            "{case}"
        );
    }
}

/// RMQ-3
#[test]
fn created_queue_matches_its_declaration() {
    for queues in [
        json!({}),
        json!({"type": "quorum"}),
        json!({"type": "classic", "dlq": {"enabled": true}}),
        json!({"dlq": {"enabled": true}}),
    ] {
        let desired = declared(&queues);
        let compared = desired.compare(&found(&desired.body()));
        assert!(
            matches!(compared, Comparison::Matches { .. }),
            "{queues}: {compared:?}"
        );
    }
}
