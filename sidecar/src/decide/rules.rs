//! The settings that decisions depend on.

use std::time::Duration;

use asya_wire::queue::{Naming, Template};

use super::{Kind, OutgoingMessage};

/// Settings, fixed for the lifetime of the process.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The actor's name in routes.
    pub actor: String,
    /// The name of happy-end in routes.
    pub happy_end: String,
    /// The name of error-end in routes.
    pub error_end: String,
    /// Set if this actor is an end actor.
    pub end: Option<EndActor>,
    pub queues: Queues,
    /// Timeout of a runtime call.
    pub timeout: Duration,
    /// How often a message is redelivered after the runtime crashed while processing it.
    pub crash_retries: u32,
    pub max_message_size: usize,
}

/// The kind of end actor, determined by its name (SC-88).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndActor {
    /// Receives messages that succeeded.
    Happy,
    /// Receives messages that failed.
    Error,
    /// Any other; sends no final report.
    Other,
}

/// Queue naming (SC-3).
#[derive(Clone, Debug)]
pub struct Queues {
    pub template: Template,
    /// The value of `{namespace}`.
    pub namespace: String,
    /// The naming rules of the broker.
    pub naming: Naming,
}

impl Queues {
    /// The queue of an actor.
    #[must_use]
    pub fn of(&self, actor: &str) -> String {
        self.template.render(&self.namespace, actor)
    }
}

impl Rules {
    /// Whether the actor name yields a valid queue name (SC-100).
    pub(super) fn has_queue(&self, actor: &str) -> bool {
        self.queues.naming.accepts_fifo(&self.queues.of(actor))
    }

    /// A message to happy-end; `id` is JSON.
    pub(super) fn to_happy_end(&self, id: &str, body: Vec<u8>) -> OutgoingMessage {
        OutgoingMessage {
            actor: self.happy_end.clone(),
            kind: Kind::HappyEnd,
            id: text_of(id),
            body,
        }
    }
}

/// Decodes an id from JSON.
pub(super) fn text_of(id: &str) -> String {
    serde_json::from_str(id).unwrap_or_default()
}
