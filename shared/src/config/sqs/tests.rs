#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use crate::config::testing::{parse, sqs};
use crate::transport::Broker;

/// SQS-1
#[test]
fn numeric_account_id_keeps_its_leading_zeros() {
    for (written, expected) in [
        (json!("000000000000"), Some("000000000000")),
        (json!(123_456_789_012_u64), Some("123456789012")),
        (json!(42), Some("000000000042")),
        (json!(""), None),
        (Value::Null, None),
    ] {
        assert_eq!(
            sqs(&json!({"accountId": written})).account_id.as_deref(),
            expected
        );
    }
    let wrong = parse(&json!({"a": {"type": "sqs", "config": {"accountId": true}}})).unwrap_err();
    assert_eq!(wrong.path, "transports.a.config.accountId");
}

/// SQS-1
#[test]
fn private_ca_of_an_endpoint_is_read_from_a_secret_and_not_passed_to_sidecars() {
    let with = json!({"endpoint": "https://sqs", "caSecretRef": {"name": "ca", "key": "ca.crt"}});
    let config = sqs(&with);
    let named = config
        .ca_secret_ref
        .as_ref()
        .map(|it| (&*it.name, &*it.key));
    assert_eq!(named, Some(("ca", "ca.crt")));
    // It would roll every pod of the transport's actors.
    let without = sqs(&json!({"endpoint": "https://sqs"}));
    assert_eq!(config.sidecar_env(), without.sidecar_env());
    assert_eq!(config.address("q"), without.address("q"));
    let wrong = json!({"a": {"type": "sqs", "config": {"caSecretRef": {"key": "ca.crt"}}}});
    let wrong = parse(&wrong).unwrap_err();
    assert!(
        wrong.path.starts_with("transports.a.config.caSecretRef"),
        "{}",
        wrong.path
    );
}

/// SQS-1
#[test]
fn zero_counts_as_unset_for_sqs() {
    let config = sqs(
        &json!({"region": "", "visibilityTimeout": 0, "waitTimeSeconds": 0, "credentials": {}, "tags": null, "endpoint": ""}),
    );
    assert_eq!(config, sqs(&json!({})));
    assert_eq!(config.credentials, None);
    assert_eq!(
        sqs(&json!({"endpoint": "http://localstack:4566/"}))
            .endpoint
            .as_deref(),
        Some("http://localstack:4566")
    );
}

/// KEDA-5
#[test]
fn role_and_workload_identity_are_mutually_exclusive() {
    let with = |keda: Value| parse(&json!({"a": {"type": "sqs", "config": {"keda": keda}}}));
    assert_eq!(
        with(json!({"identityOwner": "workload", "roleArn": "arn:aws:iam::1:role/r"}))
            .unwrap_err()
            .path,
        "transports.a.config.keda.roleArn"
    );
    assert!(with(json!({"identityOwner": "workload"})).is_ok());
    assert!(with(json!({"identityOwner": "keda", "roleArn": "arn:aws:iam::1:role/r"})).is_ok());
}
