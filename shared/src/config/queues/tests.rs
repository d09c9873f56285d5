#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use crate::config::testing::{parse, rabbitmq, sqs};

/// QUE-7
#[test]
fn queues_are_created_unless_disabled_explicitly() {
    for queues in [
        Value::Null,
        json!({}),
        json!({"dlq": {}}),
        json!({"autoCreate": true}),
        json!({"autoCreate": null}),
    ] {
        assert!(
            sqs(&json!({"queues": queues})).queues.auto_create,
            "{queues}"
        );
    }
    assert!(
        !sqs(&json!({"queues": {"autoCreate": false}}))
            .queues
            .auto_create
    );
}

/// QUE-6
#[test]
fn force_recreate_only_warns() {
    let parsed =
        parse(&json!({"a": {"type": "sqs", "config": {"queues": {"forceRecreate": true}}}}))
            .unwrap();
    assert_eq!(parsed.warnings.len(), 1);
    assert!(parsed.warnings[0].starts_with("transports.a.config.queues.forceRecreate: "));
    let parsed =
        parse(&json!({"a": {"type": "sqs", "config": {"queues": {"forceRecreate": false}}}}))
            .unwrap();
    assert!(parsed.warnings.is_empty());
}

/// QUE-14
#[test]
fn dead_letter_queues_are_disabled_by_default_with_defaults_per_transport() {
    let dlq = sqs(&json!({})).queues.dlq;
    assert_eq!(
        (dlq.enabled, dlq.max_retry_count, dlq.retention_days),
        (false, 3, Some(14))
    );
    assert_eq!(
        (dlq.name_for("asya-foo").as_str(), dlq.is_shared()),
        ("asya-dlq", true)
    );
    let dlq = rabbitmq(&json!({"host": "h"})).queues.dlq;
    assert_eq!(
        (dlq.enabled, dlq.max_retry_count, dlq.retention_days),
        (false, 3, None)
    );
    assert_eq!(
        (dlq.name_for("asya-foo").as_str(), dlq.is_shared()),
        ("asya-foo-dlq", false)
    );

    let given =
        json!({"enabled": true, "maxRetryCount": 7, "retentionDays": 2, "name": "dead-{queue}"});
    let dlq = sqs(&json!({"queues": {"dlq": given}})).queues.dlq;
    assert_eq!(
        (dlq.enabled, dlq.max_retry_count, dlq.retention_days),
        (true, 7, Some(2))
    );
    assert_eq!(
        (dlq.name_for("asya-foo").as_str(), dlq.is_shared()),
        ("dead-asya-foo", false)
    );
    let zero =
        sqs(&json!({"queues": {"dlq": {"maxRetryCount": 0, "retentionDays": 0, "name": ""}}}))
            .queues
            .dlq;
    assert_eq!(zero, sqs(&json!({})).queues.dlq);
}

/// QUE-14
#[test]
fn dead_letter_retention_is_limited_to_the_maximum_of_the_broker() {
    for (kind, days, legal) in [
        ("sqs", 14, true),
        ("sqs", 15, false),
        ("rabbitmq", 49, true),
        ("rabbitmq", 50, false),
    ] {
        let parsed = parse(
            &json!({"a": {"type": kind, "config": {"queues": {"dlq": {"retentionDays": days}}}}}),
        );
        assert_eq!(parsed.is_ok(), legal, "{kind} {days}");
    }
}

/// QUE-1
#[test]
fn name_templates_are_validated_at_startup() {
    let check = |kind: &str, template: &str| {
        parse(&json!({"a": {"type": kind, "config": {"queues": {"nameTemplate": template}}}}))
    };
    for kind in ["sqs", "rabbitmq"] {
        for right in [
            "asya-{actor}",
            "asya-{namespace}-{actor}",
            "asya-{actor}_x",
            "",
        ] {
            assert!(check(kind, right).is_ok(), "{kind} {right}");
        }
        for wrong in [
            "{actor}",
            "asya-x",
            "asya-{namespace}",
            "asya-{actor}{name}",
            "asya-{actor",
            "my-{actor}",
            "asya-{actor} x",
            "asya-{actor}*",
        ] {
            let error = check(kind, wrong).expect_err(wrong);
            assert_eq!(error.path, "transports.a.config.queues.nameTemplate");
        }
    }
    assert!(check("sqs", "asya-{actor}.x").is_err());
    assert!(check("rabbitmq", "asya-{actor}.x").is_ok());
}
