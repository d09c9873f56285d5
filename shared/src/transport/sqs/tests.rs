#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::*;
use crate::config::Transport;
use crate::config::testing::{sqs, transport};
use crate::transport::testing::lines;

fn both(config: &Value) -> (Transport, SqsConfig) {
    (transport("sqs", config), sqs(config))
}

/// POD-4
#[test]
fn sidecar_gets_the_sqs_environment_in_order_and_only_what_is_set() {
    let key = |key: &str| json!({"name": "s", "key": key});
    let config = sqs(&json!({
        "region": "eu-central-1", "endpoint": "http://sqs:1", "visibilityTimeout": 60, "waitTimeSeconds": 20,
        "credentials": {"accessKeyIdSecretRef": key("id"), "secretAccessKeySecretRef": key("secret")},
    }));
    assert_eq!(
        lines(&config.sidecar_env()),
        [
            "ASYA_TRANSPORT=sqs",
            "ASYA_AWS_REGION=eu-central-1",
            "ASYA_SQS_ENDPOINT=http://sqs:1",
            "ASYA_SQS_VISIBILITY_TIMEOUT=60",
            "ASYA_SQS_WAIT_TIME_SECONDS=20",
            "AWS_ACCESS_KEY_ID<s/id",
            "AWS_SECRET_ACCESS_KEY<s/secret",
        ]
    );
    assert_eq!(
        lines(&sqs(&json!({})).sidecar_env()),
        ["ASYA_TRANSPORT=sqs"]
    );
}

/// The queue of actor `n/foo`.
pub(super) fn queue_of(transport: &Transport) -> ActorQueue {
    ActorQueue {
        names: transport.names_of("n", "foo"),
        namespace: "n".to_owned(),
        actor: "foo".to_owned(),
        uid: "uid-1".to_owned(),
        timeout: processing(Some(300)),
        adopts: None,
    }
}

fn processing(seconds: Option<u32>) -> EffectiveTimeout {
    EffectiveTimeout {
        processing: seconds,
        graceful_shutdown: 30,
        progress: None,
    }
}

/// SQS-3
#[test]
fn visibility_timeout_is_twice_the_processing_time() {
    let unset = sqs(&json!({}));
    let set = sqs(&json!({"visibilityTimeout": 60}));
    let absurd = sqs(&json!({"visibilityTimeout": 50_000}));
    for (config, seconds, expected) in [
        (&unset, Some(100), 200),
        (&unset, None, 600),
        (&unset, Some(u32::MAX), 43_200),
        (&set, Some(100), 60),
        (&absurd, Some(100), 43_200),
    ] {
        assert_eq!(
            config.visibility_timeout_for(&processing(seconds)),
            expected
        );
    }
}

/// SQS-2, SQS-6
#[test]
fn sqs_queue_has_attributes_and_tags() {
    let (transport, config) = both(&json!({
        "tags": {"team": "nlp", "asya.sh/actor": "other", "asya.sh/type": "other"},
        "queues": {"dlq": {"enabled": true, "maxRetryCount": 5, "retentionDays": 2}},
    }));
    let desired = config.declaration(&queue_of(&transport));
    assert_eq!(desired.name, "asya-foo");
    let attributes = [
        ("VisibilityTimeout", "600"),
        ("MessageRetentionPeriod", "345600"),
    ];
    assert_eq!(
        desired.attributes,
        BTreeMap::from(attributes.map(|(key, value)| (key, value.to_owned())))
    );
    let tag = |key: &str| desired.tags[key].clone();
    assert_eq!(
        (tag("asya.sh/actor"), tag("asya.sh/namespace"), tag("team")),
        ("foo".into(), "n".into(), "nlp".into())
    );
    assert_eq!(tag("asya.sh/uid"), "uid-1");
    assert!(
        !desired.tags.contains_key("asya.sh/type"),
        "no actor's queue passes for a dead letter queue"
    );
    let dlq = desired.dlq.unwrap();
    assert_eq!(
        (
            dlq.name.as_str(),
            dlq.attributes["MessageRetentionPeriod"].as_str()
        ),
        ("asya-dlq", "172800")
    );
    assert_eq!(
        (dlq.tags["asya.sh/type"].as_str(), dlq.tags["team"].as_str()),
        ("dlq", "nlp")
    );
    assert_eq!(
        dlq.redrive_policy("arn:x"),
        r#"{"deadLetterTargetArn":"arn:x","maxReceiveCount":5}"#
    );

    let (transport, config) = both(&json!({}));
    assert_eq!(config.declaration(&queue_of(&transport)).dlq, None);
}

/// SQS-7
#[test]
fn configured_endpoint_replaces_scheme_and_host_of_the_queue_url() {
    let aws = "https://sqs.eu-central-1.amazonaws.com/123456789012/asya-foo";
    for (endpoint, url, expected) in [
        (
            "http://localstack:4566",
            "http://sqs.us-east-1.localhost.localstack.cloud:4566/000000000000/asya-foo",
            "http://localstack:4566/000000000000/asya-foo",
        ),
        (
            "https://vpce-1.sqs.eu-central-1.vpce.amazonaws.com/",
            aws,
            "https://vpce-1.sqs.eu-central-1.vpce.amazonaws.com/123456789012/asya-foo",
        ),
        (
            "http://localstack:4566/sqs",
            aws,
            "http://localstack:4566/123456789012/asya-foo",
        ),
        ("http://localstack:4566", "no URL", "no URL"),
    ] {
        assert_eq!(sqs(&json!({"endpoint": endpoint})).reachable(url), expected);
    }
    assert_eq!(sqs(&json!({})).reachable(aws), aws);
}

/// QUE-36
#[test]
fn queues_of_two_accounts_are_distinct() {
    let place = |config: Value| sqs(&config).address("asya-foo");
    let key = |name: &str| {
        let key = json!({"name": name, "key": "k"});
        json!({"region": "r", "credentials": {"accessKeyIdSecretRef": key, "secretAccessKeySecretRef": key}})
    };
    let account = |id: &str| json!({"region": "r", "accountId": id});
    let (a, b) = (account("111111111111"), account("222222222222"));
    assert_ne!(place(a.clone()), place(b));
    assert_ne!(place(key("a")), place(key("b")));
    assert_eq!(place(key("a")), place(key("a")));
    let mut other_key = key("b");
    other_key["accountId"] = a["accountId"].clone();
    assert_eq!(place(a), place(other_key), "two keys of one account");
}

/// SQS-7, KEDA-4
#[test]
fn queue_in_another_account_than_configured_is_reported() {
    let of = |config: &Value| sqs(config).location_mismatch("q", "https://sqs/000000000001/q");
    assert_eq!(of(&json!({"accountId": "000000000001"})), None);
    assert_eq!(of(&json!({})), None);
    let problem = of(&json!({"accountId": "000000000002"})).unwrap();
    assert!(
        problem.contains("belongs to account 000000000001"),
        "{problem}"
    );
    let elsewhere = sqs(&json!({"accountId": "000000000002"}));
    assert_eq!(elsewhere.location_mismatch("q", "http://queues/q"), None);
}
