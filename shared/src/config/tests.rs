#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fuzz;

use serde_json::{Value, json};

use super::testing::{parse, secret};
use super::*;

/// Values for the Go operator, as its chart renders them.
fn values_of_the_former_chart() -> Value {
    json!({
        "rabbitmq": {"enabled": true, "type": "rabbitmq", "config": {
            "host": "rabbitmq.default.svc.cluster.local", "port": 5672, "username": "guest",
            "passwordSecretRef": {"name": "rabbitmq-secret", "key": "password"},
            "queues": {"autoCreate": true, "dlq": {"enabled": false, "maxRetryCount": 3}}}},
        "sqs": {"enabled": true, "type": "sqs", "config": {
            "region": "us-east-1", "accountId": "000000000000",
            "endpoint": "http://localstack.default.svc.cluster.local:4566",
            "visibilityTimeout": 300, "waitTimeSeconds": 20,
            "credentials": {
                "accessKeyIdSecretRef": {"name": "sqs-secret", "key": "access-key-id"},
                "secretAccessKeySecretRef": {"name": "sqs-secret", "key": "secret-access-key"}},
            "tags": {"env": "test"}}}
    })
}

/// OPS-3
#[test]
fn empty_text_and_null_mean_no_transports_and_a_null_entry_is_ignored() {
    for text in [
        "",
        "  ",
        "null",
        "{}",
        r#"{"transports":null}"#,
        r#"{"transports":{}}"#,
    ] {
        assert_eq!(
            TransportsConfig::parse(text),
            Ok(TransportsConfig::default()),
            "{text:?}"
        );
    }
    let parsed = parse(&json!({"gone": null, "there": {"type": "sqs", "enabled": true}})).unwrap();
    assert_eq!(
        parsed
            .iter()
            .map(|transport| transport.name.as_str())
            .collect::<Vec<_>>(),
        ["there"]
    );
    assert!(parsed.usable("gone").is_err());
}

/// OPS-3
#[test]
fn invalid_key_or_value_is_reported_with_its_path() {
    let cases = [
        (
            json!({"a": {"type": "sqs", "enable": true}}),
            "transports.a.enable: unknown field `enable`",
        ),
        (
            json!({"a": {"type": "kafka"}}),
            "transports.a.type: \"kafka\" is not a transport type; use rabbitmq or sqs",
        ),
        (
            json!({"a": {"enabled": true}}),
            "transports.a: missing field `type`",
        ),
        (
            json!({"a": {"type": "sqs", "enabled": "yes"}}),
            "transports.a.enabled: invalid type: string",
        ),
        (
            json!({"a": {"type": "sqs", "config": {"regio": "x"}}}),
            "transports.a.config.regio: unknown field `regio`",
        ),
        (
            json!({"a": {"type": "sqs", "config": []}}),
            "transports.a.config: invalid",
        ),
        (
            json!({"a": {"type": "sqs", "config": {"queues": {"dlq": {"retries": 1}}}}}),
            "transports.a.config.queues.dlq.retries: unknown field `retries`",
        ),
        (
            json!({"a": {"type": "sqs", "config": {"queues": {"type": "quorum"}}}}),
            "transports.a.config.queues.type: only for transports of type rabbitmq",
        ),
        (
            json!({"a": {"type": "sqs", "config": {"visibilityTimeout": -1}}}),
            "transports.a.config.visibilityTimeout: invalid value",
        ),
        (
            json!({"a": {"type": "sqs", "config": {"endpoint": "localstack:4566"}}}),
            "transports.a.config.endpoint: \"localstack:4566\" must be a URL",
        ),
        (
            json!({"a": {"type": "sqs", "config": {"credentials": {"accessKeyIdSecretRef": {"name": "s", "key": "k"}}}}}),
            "transports.a.config.credentials.secretAccessKeySecretRef: must be set together with accessKeyIdSecretRef",
        ),
        (
            json!({"a": {"type": "rabbitmq", "enabled": true, "config": {"host": "h", "passwordSecretRef": {"name": "s", "key": ""}}}}),
            "transports.a.config.passwordSecretRef.key: must name a key of the Secret",
        ),
        (
            json!({"a": {"type": "rabbitmq", "enabled": true, "config": {"host": "h", "passwordSecretRef": {"name": "s"}}}}),
            "transports.a.config.passwordSecretRef: missing field `key`",
        ),
        (
            json!({"a": {"type": "rabbitmq", "enabled": true, "config": {"host": "h", "management": {"scheme": "ftp"}}}}),
            "transports.a.config.management.scheme: unknown variant `ftp`",
        ),
        (
            json!({"a": {"type": "rabbitmq", "enabled": true, "config": {"host": "h", "port": 70000}}}),
            "transports.a.config.port: invalid value",
        ),
    ];
    for (transports, expected) in cases {
        let error = parse(&transports).expect_err(expected).to_string();
        assert!(
            error.starts_with(&format!("ASYA_TRANSPORT_CONFIG: {expected}")),
            "{error}"
        );
    }
    let error = TransportsConfig::parse(r#"{"transport": {}}"#).unwrap_err();
    assert_eq!(error.path, "transport");
    for broken in ["{", "[]", r#"{"transports":{}} x"#, "true"] {
        let error = TransportsConfig::parse(broken).expect_err(broken);
        assert!(
            error.to_string().starts_with("ASYA_TRANSPORT_CONFIG: "),
            "{error}"
        );
    }
}

/// OPS-3: a program that is older than the operator reads what it knows.
#[test]
fn unknown_keys_are_ignored_only_on_request() {
    let known = json!({"transports": {
        "a.b": {"type": "sqs", "enabled": true, "config": {
            "region": "eu-west-1", "queues": {"dlq": {"enabled": true}},
            "credentials": {
                "accessKeyIdSecretRef": {"name": "s", "key": "id"},
                "secretAccessKeySecretRef": {"name": "s", "key": "key"}}}},
        "mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "h", "management": {"port": 1}}},
    }});
    let mut later = known.clone();
    for path in [
        "",
        "/transports/a.b",
        "/transports/a.b/config",
        "/transports/a.b/config/queues/dlq",
        "/transports/a.b/config/credentials/accessKeyIdSecretRef",
        "/transports/mq/config/management",
    ] {
        let fields = later.pointer_mut(path).unwrap().as_object_mut().unwrap();
        fields.insert("ofALaterRelease".to_owned(), json!({"a": [1]}));
        fields.insert("another".to_owned(), Value::Null);
    }
    let expected = TransportsConfig::parse(&known.to_string());
    assert!(expected.is_ok(), "{expected:?}");
    assert_eq!(TransportsConfig::parse_known(&later.to_string()), expected);
    assert_eq!(TransportsConfig::parse_known(&known.to_string()), expected);
    assert!(TransportsConfig::parse(&later.to_string()).is_err());
    let empty = Ok(TransportsConfig::default());
    for text in ["", "null", "{}", r#"{"transports":{"a":null}}"#] {
        assert_eq!(TransportsConfig::parse_known(text), empty, "{text:?}");
    }
}

/// OPS-3
#[test]
fn invalid_value_is_an_error_whether_unknown_keys_are_ignored_or_not() {
    for (transports, path) in [
        (json!({"a": {"type": "kafka"}}), "transports.a.type"),
        (json!({"a": {"enabled": true, "x": 1}}), "transports.a"),
        (
            json!({"a": {"type": "sqs", "config": {"x": 1, "visibilityTimeout": -1}}}),
            "transports.a.config.visibilityTimeout",
        ),
        (
            json!({"a": {"type": "rabbitmq", "enabled": true, "config": {"host": "h", "queues": {"type": "stream"}}}}),
            "transports.a.config.queues.type",
        ),
    ] {
        let text = json!({"transports": transports}).to_string();
        let error = TransportsConfig::parse_known(&text).unwrap_err();
        assert_eq!(error.path, path, "{error}");
    }
    for broken in ["{", "[]", r#"{"transports":{}} x"#, "true"] {
        assert!(TransportsConfig::parse_known(broken).is_err(), "{broken}");
    }
}

/// OPS-3
#[test]
fn disabled_transport_may_be_incomplete_but_not_invalid() {
    let off = |config: Value| {
        parse(&json!({"a": {"type": "rabbitmq", "enabled": false, "config": config}}))
    };
    assert!(off(json!({})).is_ok());
    assert!(off(Value::Null).is_ok());
    assert_eq!(
        off(json!({"hots": "h"})).unwrap_err().path,
        "transports.a.config.hots"
    );
    assert_eq!(
        off(json!({"host": "h:1"})).unwrap_err().path,
        "transports.a.config.host"
    );
    let on = parse(&json!({"a": {"type": "rabbitmq", "enabled": true}})).unwrap_err();
    assert_eq!(
        (on.path.as_str(), on.message.as_str()),
        ("transports.a.config.host", "must be set")
    );
}

/// VAL-20
#[test]
fn transport_is_looked_up_by_name_unless_unknown_or_disabled() {
    let parsed = parse(&json!({
        "sqs-eu": {"type": "sqs", "enabled": true},
        "off": {"type": "sqs", "enabled": false},
        "unset": {"type": "sqs"},
    }))
    .unwrap();
    assert!(matches!(
        parsed.usable("sqs-eu").unwrap().kind,
        TransportKind::Sqs(_)
    ));
    let text = |name: &str| parsed.usable(name).unwrap_err().to_string();
    assert_eq!(text("sqs"), "transport \"sqs\" is not configured");
    assert_eq!(text("off"), "transport \"off\" is disabled");
    assert_eq!(text("unset"), "transport \"unset\" is disabled");
}

#[test]
fn values_of_the_former_operator_are_accepted() {
    let parsed = parse(&values_of_the_former_chart()).unwrap();
    assert!(parsed.warnings.is_empty());
    let TransportKind::Rabbitmq(rabbitmq) = &parsed.usable("rabbitmq").unwrap().kind else {
        panic!()
    };
    assert_eq!(rabbitmq.host, "rabbitmq.default.svc.cluster.local");
    assert_eq!(
        rabbitmq.password_secret_ref,
        Some(secret("rabbitmq-secret", "password"))
    );
    let TransportKind::Sqs(sqs) = &parsed.usable("sqs").unwrap().kind else {
        panic!()
    };
    assert_eq!(sqs.account_id.as_deref(), Some("000000000000"));
    assert_eq!(sqs.visibility_timeout, Some(300));
    assert_eq!(sqs.wait_time_seconds, Some(20));
    assert_eq!(
        sqs.credentials,
        Some(SqsCredentials {
            access_key_id: secret("sqs-secret", "access-key-id"),
            secret_access_key: secret("sqs-secret", "secret-access-key"),
        })
    );
    assert_eq!(sqs.tags["env"], "test");
}
