#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::json;

use crate::config::testing::{parse, rabbitmq, secret};
use crate::config::{KedaProtocol, QueueType, SecretKeyRef};

/// RMQ-1
#[test]
fn rabbitmq_needs_only_its_host() {
    let config = rabbitmq(&json!({"host": "broker"}));
    assert_eq!(
        (config.port, config.username.as_str(), config.vhost.as_str()),
        (5672, "guest", "/")
    );
    assert_eq!((config.exchange.as_str(), config.tls), ("asya", false));
    assert_eq!(config.management.url(), "http://broker:15672");
    assert_eq!(config.keda_protocol, KedaProtocol::Http);
    assert_eq!(config.queues.queue_type, QueueType::Auto);
    assert_eq!(rabbitmq(&json!({"host": "broker", "tls": true})).port, 5671);
    // what Go's zero values meant
    let zero = rabbitmq(
        &json!({"host": "broker", "port": 0, "username": "", "exchange": "", "passwordSecretRef": null}),
    );
    assert_eq!(zero, config);
}

/// RMQ-1
#[test]
fn all_keys_of_rabbitmq_are_accepted() {
    let config = rabbitmq(&json!({
        "host": "broker", "port": 5000, "username": "u", "vhost": "v", "tls": true, "exchange": "e",
        "urlSecretRef": {"name": "url", "key": "amqp", "optional": true},
        "management": {"scheme": "https", "host": "api", "port": 443, "caSecretRef": {"name": "ca", "key": "ca.crt"}, "insecureSkipVerify": true},
        "keda": {"protocol": "amqp"},
        "queues": {"type": "quorum"},
    }));
    assert_eq!(
        (config.port, config.vhost.as_str(), config.exchange.as_str()),
        (5000, "v", "e")
    );
    assert_eq!(
        config.url_secret_ref,
        Some(SecretKeyRef {
            optional: Some(true),
            ..secret("url", "amqp")
        })
    );
    assert_eq!(config.management.url(), "https://api:443");
    assert_eq!(
        config.management.ca_secret_ref,
        Some(secret("ca", "ca.crt"))
    );
    assert!(config.management.insecure_skip_verify);
    assert_eq!(config.keda_protocol, KedaProtocol::Amqp);
    assert_eq!(config.queues.queue_type, QueueType::Quorum);
}

/// RMQ-1
#[test]
fn host_must_not_have_a_scheme_or_port() {
    for wrong in [
        "amqp://broker",
        "broker:5672",
        "broker/",
        "user@broker",
        "a b",
        "broker%2F",
    ] {
        for key in ["host", "management"] {
            let config = if key == "host" {
                json!({"host": wrong})
            } else {
                json!({"host": "h", "management": {"host": wrong}})
            };
            let error =
                parse(&json!({"a": {"type": "rabbitmq", "enabled": true, "config": config}}))
                    .expect_err(wrong);
            assert!(error.path.ends_with("host"), "{error}");
        }
    }
    for right in ["broker", "broker.default.svc.cluster.local.", "10.0.0.1"] {
        assert_eq!(rabbitmq(&json!({"host": right})).host, right);
    }
    for address in ["fd00::1", "[fd00::1]"] {
        assert_eq!(rabbitmq(&json!({"host": address})).host, "[fd00::1]");
    }
}
