//! `spec.queue`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The actor's queue at the broker. It is created for every actor, whether scaling is on or off.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// What happens to the queue when the actor is deleted: Delete (the default) removes it together with
    /// the messages in it, Retain leaves it at the broker.
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
}
