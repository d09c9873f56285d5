//! `spec.queue`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The actor's queue at the broker. It exists for every actor, whether scaling is on or off.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Decides what happens to the queue when the actor is deleted. Delete (the default): the queue is deleted,
    /// together with its messages. Retain: the queue stays at the broker, together with its messages. DeleteIfEmpty:
    /// the deletion of the actor is refused, or waits, while its queue holds messages. Drain: the pods keep consuming
    /// until the queue is empty, then actor and queue are deleted. In a namespace that is being deleted, DeleteIfEmpty
    /// and Drain leave a queue that holds messages at the broker. The policy can be changed while the actor is being
    /// deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<QueueDeletionPolicy>,
}

/// What happens to the queue when the actor is deleted.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum QueueDeletionPolicy {
    /// The queue is deleted with the actor, messages included.
    #[default]
    Delete,
    /// The queue stays at the broker, messages included.
    Retain,
    /// The deletion of the actor is refused, or waits, while its queue holds messages.
    DeleteIfEmpty,
    /// The pods empty the queue, then actor and queue are deleted.
    Drain,
}

impl QueueDeletionPolicy {
    /// Reads the raw `spec.queue` of an actor whose spec might not decode as a whole. A value that this version does
    /// not know keeps the queue, because deleted messages cannot be restored.
    #[must_use]
    pub fn from_raw(queue: Option<&Value>) -> Self {
        match queue.and_then(|queue| queue.get("deletionPolicy")) {
            None | Some(Value::Null) => Self::default(),
            Some(policy) => Self::deserialize(policy).unwrap_or(Self::Retain),
        }
    }

    /// Whether the deletion of the actor waits until its queue is empty.
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
            assert_eq!(
                QueueDeletionPolicy::from_raw(Some(&queue)),
                policy,
                "{queue}"
            );
        }
        assert_eq!(QueueDeletionPolicy::from_raw(None), Delete);
    }
}
