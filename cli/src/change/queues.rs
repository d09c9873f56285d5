//! What the deletion of an actor does to its queues.

use asya_shared::api::QueueDeletionPolicy;
use serde_json::Value;

use crate::actor::{deletion_policy, is_orphaned, keeps_queue};

/// The consequences for the queue and for those that the actor no longer uses.
pub fn queues_afterwards(actor: &Value, keep_queue: bool) -> Vec<String> {
    let is_kept = keep_queue || keeps_queue(actor) || is_orphaned(actor);
    let policy = (!is_kept).then(|| deletion_policy(actor));
    let retired = actor["status"]["retiredQueues"].as_array();
    let retired = retired.into_iter().flatten();
    [queue_afterwards(&actor["status"], policy)]
        .into_iter()
        .chain(retired.map(|queue| retired_afterwards(queue, policy)))
        .collect()
}

/// The consequence for the queue. `policy` is absent if it stays.
fn queue_afterwards(status: &Value, policy: Option<QueueDeletionPolicy>) -> String {
    let queue = status["queue"]["name"].as_str().unwrap_or("its queue");
    let messages = messages(status);
    match policy {
        Some(QueueDeletionPolicy::Drain) => {
            format!("{queue} is deleted once its pods have processed {messages}")
        }
        Some(QueueDeletionPolicy::DeleteIfEmpty) => {
            format!("{queue} is deleted once it is empty; it has {messages}")
        }
        Some(QueueDeletionPolicy::Delete) => {
            format!("{queue} is DELETED with {messages}; --keep-queue keeps them")
        }
        Some(QueueDeletionPolicy::Retain) | None => format!("{queue} stays, with {messages}"),
    }
}

/// How many messages the queue has, as the operator has reported last.
fn messages(status: &Value) -> String {
    let Some(waiting) = status["queuedMessages"].as_i64() else {
        return "an unknown number of messages".to_owned();
    };
    let processing = status["processingMessages"].as_i64().unwrap_or_default();
    format!("about {} messages", waiting + processing)
}

/// The consequence for a queue of an earlier transport or name (QUE-13). Its messages are not counted.
fn retired_afterwards(queue: &Value, policy: Option<QueueDeletionPolicy>) -> String {
    let text = |field: &str| queue[field].as_str().unwrap_or("?");
    let queue_name = format!("{} on {}", text("name"), text("transport"));
    let subject = if queue["unconfirmed"] == true {
        format!("{queue_name}, which may be a former queue of it,")
    } else {
        format!("its former queue {queue_name}")
    };
    match policy {
        Some(QueueDeletionPolicy::Delete) if queue["unconfirmed"] == true => {
            format!("{subject} is deleted if it is empty")
        }
        Some(QueueDeletionPolicy::Delete) => {
            format!(
                "{subject} is DELETED with an unknown number of messages; --keep-queue keeps them"
            )
        }
        Some(QueueDeletionPolicy::Drain | QueueDeletionPolicy::DeleteIfEmpty) => {
            format!("{subject} is deleted once it is empty")
        }
        Some(QueueDeletionPolicy::Retain) | None => format!("{subject} stays, with its messages"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn actor(annotations: &Value, spec: &Value, status: &Value) -> Value {
        json!({
            "metadata": {"name": "embed", "annotations": annotations}, "spec": spec, "status": status,
        })
    }

    fn afterwards(spec: &Value, status: &Value, keep_queue: bool) -> Vec<String> {
        queues_afterwards(&actor(&json!({}), spec, status), keep_queue)
    }

    /// QUE-40, FW-23
    #[test]
    fn unbinding_says_what_becomes_of_the_messages() {
        let policy = |it: &str| json!({"queue": {"deletionPolicy": it}});
        let status = json!({
            "queue": {"name": "asya-embed"}, "queuedMessages": 12, "processingMessages": 3,
        });
        for (spec, keep_queue, text) in [
            (
                json!({}),
                false,
                "asya-embed is DELETED with about 15 messages; --keep-queue keeps them",
            ),
            (json!({}), true, "asya-embed stays, with about 15 messages"),
            (
                policy("Drain"),
                false,
                "asya-embed is deleted once its pods have processed about 15 messages",
            ),
            (
                policy("DeleteIfEmpty"),
                false,
                "asya-embed is deleted once it is empty; it has about 15 messages",
            ),
            (
                json!({"deletionPolicy": "Orphan"}),
                false,
                "asya-embed stays, with about 15 messages",
            ),
        ] {
            assert_eq!(afterwards(&spec, &status, keep_queue), [text], "{spec}");
        }
    }

    /// QUE-13: the operator deletes them with the actor, messages included.
    #[test]
    fn queues_that_the_actor_no_longer_uses_are_named() {
        let policy = |it: &str| json!({"queue": {"deletionPolicy": it}});
        let status = json!({
            "queue": {"name": "asya-embed"}, "queuedMessages": 1,
            "retiredQueues": [
                {"transport": "sqs", "name": "asya-embed"},
                {"transport": "old", "name": "asya-e", "unconfirmed": true},
            ],
        });
        for (spec, keep_queue, expected) in [
            (
                json!({}),
                false,
                [
                    "its former queue asya-embed on sqs is DELETED with an unknown number of messages; --keep-queue \
                     keeps them",
                    "asya-e on old, which may be a former queue of it, is deleted if it is empty",
                ],
            ),
            (
                json!({}),
                true,
                [
                    "its former queue asya-embed on sqs stays, with its messages",
                    "asya-e on old, which may be a former queue of it, stays, with its messages",
                ],
            ),
            (
                policy("Drain"),
                false,
                [
                    "its former queue asya-embed on sqs is deleted once it is empty",
                    "asya-e on old, which may be a former queue of it, is deleted once it is empty",
                ],
            ),
        ] {
            let found = afterwards(&spec, &status, keep_queue);
            assert_eq!(found[1..], expected, "{spec} {keep_queue}");
        }
    }

    /// FIN-3: messages that nobody has counted, as those of a broker that does not respond, may be many.
    #[test]
    fn unknown_number_of_messages_is_not_said_to_be_zero() {
        for (status, text) in [
            (json!({}), "an unknown number of messages"),
            (json!({"queuedMessages": 0}), "about 0 messages"),
        ] {
            let found = afterwards(&json!({}), &status, false);
            assert_eq!(
                found,
                [format!(
                    "its queue is DELETED with {text}; --keep-queue keeps them"
                )]
            );
        }
    }

    /// FW-21: templates may render an annotation empty.
    #[test]
    fn empty_annotation_does_not_keep_the_queue() {
        for (value, stays) in [("", false), ("false", false), ("true", true)] {
            let annotations = json!({"asya.sh/skip-queue-deletion": value});
            let actor = actor(&annotations, &json!({}), &json!({}));
            let found = queues_afterwards(&actor, false);
            assert_eq!(found[0].contains(" stays"), stays, "{value}: {found:?}");
        }
    }
}
