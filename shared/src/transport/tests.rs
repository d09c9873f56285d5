#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fuzz;

use serde_json::json;

use super::*;
use crate::config::testing::transport;

/// QUE-1
#[test]
fn queue_is_named_after_its_actor() {
    let names = transport("sqs", &json!({})).names_of("team-a", "foo");
    assert_eq!(
        names,
        QueueNames {
            queue: "asya-foo".to_owned(),
            dlq: None,
            actor: "foo".to_owned(),
            happy_end: "happy-end".to_owned(),
            error_end: "error-end".to_owned(),
        }
    );
}

/// QUE-1
#[test]
fn name_template_applies_to_the_queue_and_to_addressed_actors() {
    let config = json!({"host": "h", "queues": {"nameTemplate": "asya-{namespace}-{actor}", "dlq": {"enabled": true}}});
    let names = transport("rabbitmq", &config).names_of("team-a", "foo");
    assert_eq!(names.queue, "asya-team-a-foo");
    assert_eq!(names.dlq.as_deref(), Some("asya-team-a-foo-dlq"));
    assert_eq!(names.actor, "team-a-foo");
    assert_eq!(names.happy_end, "team-a-happy-end");
    assert_eq!(names.error_end, "team-a-error-end");
}

/// VAL-11
#[test]
fn illegal_queue_names_are_reported() {
    let sqs = transport("sqs", &json!({}));
    let rabbitmq = transport(
        "rabbitmq",
        &json!({"host": "h", "queues": {"dlq": {"enabled": true}}}),
    );
    let long = "a".repeat(75);
    assert!(sqs.illegal_names("n", &long).is_empty());
    assert_eq!(
        sqs.illegal_names("n", &format!("{long}a")),
        [format!("asya-{long}a")]
    );
    assert_eq!(sqs.illegal_names("n", "a.b"), ["asya-a.b"]);
    assert!(rabbitmq.illegal_names("n", "a.b").is_empty());
    // 250 bytes are allowed, but not with -dlq appended
    let longest = "ä".repeat(125);
    assert_eq!(
        rabbitmq.illegal_names("n", &longest),
        [format!("asya-{longest}-dlq")]
    );
}

/// The hash for actor `ns/foo` on this broker.
fn hash(kind: &str, config: &Value, processing: u32) -> String {
    let transport = transport(kind, config);
    transport.desired_hash(&ActorQueue {
        names: transport.names_of("ns", "foo"),
        namespace: "ns".to_owned(),
        actor: "foo".to_owned(),
        uid: "uid".to_owned(),
        timeout: EffectiveTimeout {
            processing: Some(processing),
            graceful_shutdown: 30,
            progress: None,
        },
        adopts: None,
    })
}

/// Whether each of these settings, added to `base`, changes the hash.
fn changes(kind: &str, base: &Value, settings: &[Value]) -> Vec<bool> {
    let previous = hash(kind, base, 300);
    let changed = settings.iter().map(|more| {
        let mut config = base.clone();
        let all = config.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        hash(kind, &config, 300) != previous
    });
    changed.collect()
}

fn queues(settings: &Value) -> Value {
    json!({"queues": settings})
}

/// QUE-8 (a), OPS-3, SQS-4
#[test]
fn sqs_hash_changes_only_with_what_the_queue_must_be() {
    let base = json!({"region": "r"});
    let seen = [
        json!({"visibilityTimeout": 77}),
        json!({"tags": {"team": "a"}}),
        json!({"region": "s"}),
        json!({"endpoint": "http://elsewhere"}),
        queues(&json!({"autoCreate": false})),
        queues(&json!({"nameTemplate": "asya-{namespace}-{actor}"})),
        queues(&json!({"dlq": {"enabled": true}})),
    ];
    assert_eq!(changes("sqs", &base, &seen), [true; 7]);
    assert_ne!(
        hash("sqs", &base, 301),
        hash("sqs", &base, 300),
        "the actor's own timeout"
    );
    let key = json!({"name": "s", "key": "k"});
    let unseen = [
        json!({"waitTimeSeconds": 5}),
        json!({"credentials": {"accessKeyIdSecretRef": key, "secretAccessKeySecretRef": key}}),
        queues(&json!({"autoCreate": true, "forceRecreate": true})),
    ];
    assert_eq!(changes("sqs", &base, &unseen), [false; 3]);
    let base = queues(&json!({"dlq": {"enabled": true}}));
    let seen = [
        queues(&json!({"dlq": {"enabled": true, "maxRetryCount": 7}})),
        queues(&json!({"dlq": {"enabled": true, "retentionDays": 3}})),
        queues(&json!({"dlq": {"enabled": true, "name": "x"}})),
    ];
    assert_eq!(changes("sqs", &base, &seen), [true; 3]);
}

/// QUE-8 (a), OPS-3
#[test]
fn rabbitmq_hash_changes_only_with_what_the_queue_must_be() {
    let base = json!({"host": "h"});
    let seen = [
        json!({"host": "i"}),
        json!({"vhost": "v"}),
        json!({"exchange": "e"}),
        json!({"management": {"port": 1}}),
        queues(&json!({"type": "quorum"})),
        queues(&json!({"type": "classic"})),
        queues(&json!({"autoCreate": false})),
        queues(&json!({"dlq": {"enabled": true}})),
    ];
    assert_eq!(changes("rabbitmq", &base, &seen), [true; 8]);
    assert_eq!(
        hash("rabbitmq", &base, 301),
        hash("rabbitmq", &base, 300),
        "its queues have no timeout"
    );
    let unseen = [
        json!({"username": "u"}),
        json!({"port": 1}),
        json!({"passwordSecretRef": {"name": "s", "key": "k"}}),
    ];
    assert_eq!(changes("rabbitmq", &base, &unseen), [false; 3]);
}

/// QUE-14
#[test]
fn dead_letter_queue_is_owned_if_its_name_contains_the_queues() {
    let own = |kind: &str, dlq: Value| {
        let mut config = queues(&json!({"dlq": dlq}));
        if kind == "rabbitmq" {
            config["host"] = json!("h");
        }
        transport(kind, &config).own_dead_letters("asya-foo")
    };
    let own_name = Some("asya-foo-dlq".to_owned());
    assert_eq!(own("rabbitmq", json!({"enabled": true})), own_name);
    assert_eq!(own("rabbitmq", json!({})), None);
    assert_eq!(
        own("rabbitmq", json!({"enabled": true, "name": "dead"})),
        None
    );
    assert_eq!(own("sqs", json!({"enabled": true})), None);
    assert_eq!(
        own("sqs", json!({"enabled": true, "name": "{queue}-dlq"})),
        own_name
    );
}

/// QUE-14
#[test]
fn previous_dead_letter_queues_are_owned_unless_now_shared() {
    let with = |dlq: Value| transport("rabbitmq", &json!({"host": "h", "queues": {"dlq": dlq}}));
    let previous = ["asya-a-dlq".to_owned(), "asya-a-old".to_owned()];
    let all = |dlq: Value| with(dlq).all_own_dead_letters("asya-a", &previous);
    assert_eq!(all(json!({"enabled": false})), previous, "switched off");
    let renamed = all(json!({"enabled": true, "name": "{queue}-dead"}));
    assert_eq!(renamed, ["asya-a-dead", "asya-a-dlq", "asya-a-old"]);
    assert_eq!(all(json!({"enabled": true})), previous, "each once");
    let shared = all(json!({"enabled": true, "name": "asya-a-old"}));
    assert_eq!(shared, ["asya-a-dlq"]);
}

/// A release that changed these hashes would verify all queues again and write every actor's status (QUE-35).
#[test]
fn hashes_of_verified_queues_are_stable() {
    let sqs =
        json!({"region": "r", "accountId": "111111111111", "queues": {"dlq": {"enabled": true}}});
    let rabbitmq = json!({"host": "h", "queues": {"dlq": {"enabled": true}}});
    assert_eq!(hash("sqs", &sqs, 300), "639e820bad2c83e3");
    assert_eq!(hash("rabbitmq", &rabbitmq, 300), "38ab288258181a3d");
}
