//! `spec.queue`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The actor's queue at the broker. It is created for every actor, whether scaling is on or off.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// What happens to the queue when the actor is deleted. Delete (the default) removes it together with the
    /// messages in it. Retain leaves it at the broker. DeleteIfEmpty refuses to delete the actor while its queue
    /// holds messages. Drain keeps the pods working until the queue is empty, then deletes both. In a namespace
    /// that is being deleted, DeleteIfEmpty and Drain leave a queue with messages at the broker. The policy can be
    /// changed while the actor is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<QueueDeletionPolicy>,
}

/// What happens to the queue when the actor is deleted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum QueueDeletionPolicy {
    /// The queue goes with the actor, messages included.
    #[default]
    Delete,
    /// The queue stays.
    Retain,
    /// The actor is deleted only with an empty queue; until then its deletion is refused.
    DeleteIfEmpty,
    /// The actor works its queue off, then both go.
    Drain,
}

impl QueueDeletionPolicy {
    /// Reads the raw `spec.queue` of an actor whose spec may not decode as a whole. A value that this release does
    /// not know keeps the queue: messages cannot be brought back.
    #[must_use]
    pub fn of_raw(queue: Option<&Value>) -> Self {
        match queue.and_then(|queue| queue.get("deletionPolicy")) {
            None | Some(Value::Null) => Self::default(),
            Some(policy) => Self::deserialize(policy).unwrap_or(Self::Retain),
        }
    }

    /// Whether the actor is deleted only once its queue is empty.
    #[must_use]
    pub fn waits_until_empty(self) -> bool {
        matches!(self, Self::DeleteIfEmpty | Self::Drain)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::QueueDeletionPolicy::{self, Delete, DeleteIfEmpty, Drain, Retain};

    /// QUE-47
    #[test]
    fn unknown_policy_keeps_the_queue() {
        for (queue, policy) in [
            (json!({}), Delete),
            (json!({"deletionPolicy": null}), Delete),
            (json!({"deletionPolicy": "Delete"}), Delete),
            (json!({"deletionPolicy": "Retain"}), Retain),
            (json!({"deletionPolicy": "DeleteIfEmpty"}), DeleteIfEmpty),
            (json!({"deletionPolicy": "Drain", "newer": 1}), Drain),
            (json!({"deletionPolicy": "Archive"}), Retain),
            (json!({"deletionPolicy": 1}), Retain),
        ] {
            assert_eq!(QueueDeletionPolicy::of_raw(Some(&queue)), policy, "{queue}");
        }
        assert_eq!(QueueDeletionPolicy::of_raw(None), Delete);
    }
}
