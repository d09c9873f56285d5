#![allow(clippy::unwrap_used, clippy::expect_used)]

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
fn template_renames_the_queue_and_every_actor_that_messages_name() {
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
fn queue_names_that_the_broker_would_refuse_are_found() {
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
    // 250 bytes of name fit, but not with -dlq behind them
    let longest = "ä".repeat(125);
    assert_eq!(
        rabbitmq.illegal_names("n", &longest),
        [format!("asya-{longest}-dlq")]
    );
}
