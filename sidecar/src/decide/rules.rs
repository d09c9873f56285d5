//! The settings that decide what becomes of a message.

use std::time::Duration;

use asya_wire::queue::{Naming, Template};

use super::{Kind, Letter};

/// Settings, for as long as the process lives.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The actor's name in routes.
    pub actor: String,
    /// The name of happy-end in routes.
    pub happy_end: String,
    /// The name of error-end in routes.
    pub error_end: String,
    /// Set where messages end here.
    pub end: Option<End>,
    /// Names of queues.
    pub queues: Queues,
    /// How long a call may take.
    pub timeout: Duration,
    /// How often a message comes again after the runtime has ended with it.
    pub crash_retries: u32,
    /// Bytes of the largest message.
    pub max_message_size: usize,
}

/// Which end an end actor is: by its name (SC-88).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Messages succeeded.
    Happy,
    /// Messages failed.
    Error,
    /// Neither: no final report.
    Other,
}

/// Names of queues (SC-3).
#[derive(Clone, Debug)]
pub struct Queues {
    /// The template.
    pub template: Template,
    /// Stands for `{namespace}`.
    pub namespace: String,
    /// What the broker allows.
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
    /// Whether an actor of this name can have a queue (SC-100).
    pub(super) fn has_queue(&self, actor: &str) -> bool {
        self.queues.naming.accepts_fifo(&self.queues.of(actor))
    }

    /// A message to happy-end; `id` is JSON.
    pub(super) fn to_happy_end(&self, id: &str, body: Vec<u8>) -> Letter {
        Letter {
            actor: self.happy_end.clone(),
            kind: Kind::HappyEnd,
            id: text_of(id),
            body,
        }
    }
}

/// The text of an id that is written as JSON.
pub(super) fn text_of(id: &str) -> String {
    serde_json::from_str(id).unwrap_or_default()
}
