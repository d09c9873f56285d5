//! What deleting an actor does to its queues.

use asya_shared::api::QueueDeletionPolicy;
use serde_json::Value;

use crate::actor::{
    CONFLICT, deletion_policy, is_orphaned, is_queue_unmanaged, keeps_queue, queue_conflict,
};

/// What happens to the queue and to those that the actor no longer uses.
pub fn queues_afterwards(actor: &Value, keep_queue: bool) -> Vec<String> {
    let is_unmanaged = is_queue_unmanaged(actor);
    let is_kept = keep_queue || keeps_queue(actor) || is_orphaned(actor) || is_unmanaged;
    let policy = (!is_kept).then(|| deletion_policy(actor));
    let retired = actor["status"]["retiredQueues"].as_array();
    let retired = retired.into_iter().flatten();
    let queue = match (policy, queue_conflict(actor)) {
        (Some(policy), Some(why)) => conflicting_afterwards(&actor["status"], policy, why),
        _ => queue_afterwards(&actor["status"], policy),
    };
    [queue]
        .into_iter()
        .chain(retired.map(|queue| retired_afterwards(queue, policy)))
        .collect()
}

/// What happens to the queue; without `policy`, it stays.
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

/// What happens to the queue if another actor owns its name. The operator deletes only queues that the broker marks as
/// this actor's, such as an earlier one (FIN-4, QUE-34).
fn conflicting_afterwards(status: &Value, policy: QueueDeletionPolicy, why: &str) -> String {
    let Some(queue) = status["queue"]["name"].as_str() else {
        return format!("the queue of its name stays, with its messages: {CONFLICT}, {why}");
    };
    let otherwise = match policy {
        QueueDeletionPolicy::Delete => "DELETED with them; --keep-queue keeps them",
        _ => "deleted once it is empty",
    };
    format!(
        "{queue} stays, with its messages: {CONFLICT}, {why}; if the broker marks it as this actor's all the same, it \
         is {otherwise}"
    )
}

/// How many messages the queue has, as last reported by the operator.
fn messages(status: &Value) -> String {
    let Some(waiting) = status["queuedMessages"].as_i64() else {
        return "an unknown number of messages".to_owned();
    };
    let processing = status["processingMessages"].as_i64().unwrap_or_default();
    format!("about {} messages", waiting + processing)
}

/// What happens to a queue of an earlier transport or name (QUE-13). Its messages are not counted.
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

    /// FIN-4, QUE-3, QUE-34: the operator keeps a queue that belongs to another actor.
    #[test]
    fn queue_of_another_actor_is_not_said_to_be_deleted() {
        let conflict = |fields: Value| {
            let condition = json!({
                "type": "TransportReady", "status": "False", "reason": "QueueConflict", "message": "it is n/e's",
            });
            let mut status = json!({"conditions": [condition]});
            super::super::delete::merge(&mut status, &fields);
            status
        };
        let queue = json!({"queue": {"name": "asya-embed"}, "queuedMessages": 12});
        let retained = json!({"queue": {"deletionPolicy": "Retain"}});
        let drain = json!({"queue": {"deletionPolicy": "Drain"}});
        let unless = "asya-embed stays, with its messages: QueueConflict, it is n/e's; if the broker marks it as this \
                      actor's all the same, it is";
        for (spec, status, keep_queue, expected) in [
            (
                json!({}),
                conflict(json!({})),
                false,
                "the queue of its name stays, with its messages: QueueConflict, it is n/e's".to_owned(),
            ),
            (
                json!({}),
                json!({"queueMarkedForOther": true}),
                false,
                "the queue of its name stays, with its messages: QueueConflict, the broker marks it as that of \
                 another actor or cluster (status.queueMarkedForOther)"
                    .to_owned(),
            ),
            (
                json!({}),
                conflict(queue.clone()),
                false,
                format!("{unless} DELETED with them; --keep-queue keeps them"),
            ),
            (
                drain,
                conflict(queue.clone()),
                false,
                format!("{unless} deleted once it is empty"),
            ),
            (
                retained,
                conflict(queue.clone()),
                false,
                "asya-embed stays, with about 12 messages".to_owned(),
            ),
            (
                json!({}),
                conflict(queue),
                true,
                "asya-embed stays, with about 12 messages".to_owned(),
            ),
        ] {
            assert_eq!(
                afterwards(&spec, &status, keep_queue),
                [expected],
                "{status}"
            );
        }
    }

    /// FIN-4, QUE-12
    #[test]
    fn queue_that_the_operator_does_not_manage_stays() {
        let condition =
            json!({"type": "TransportReady", "status": "True", "reason": "TransportValidated"});
        let former = json!({"transport": "sqs", "name": "asya-e"});
        let status = json!({"conditions": [condition], "retiredQueues": [former]});
        assert_eq!(
            afterwards(&json!({}), &status, false),
            [
                "its queue stays, with an unknown number of messages",
                "its former queue asya-e on sqs stays, with its messages"
            ]
        );
    }

    /// FIN-3: messages that were not counted may be many, for example because the broker does not respond.
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

    /// FW-21: templates may render an empty annotation.
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
