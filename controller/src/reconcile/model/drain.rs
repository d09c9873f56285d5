//! Progress of a deletion that requires an empty queue (QUE-40).

use std::time::Duration;

use asya_shared::api::QueueStatus;
use k8s_openapi::api::core::v1::Namespace;

use crate::broker::Depth;
use crate::fault::Fault;

/// Progress of a deletion that waits until the queue is drained.
#[derive(Clone, Debug, PartialEq)]
pub enum DrainState {
    /// A queue holds messages, or may hold some: tear nothing down.
    Waiting(RemainingQueues),
    /// No messages were counted. Counts lag, so the queue must still be empty after this delay. Status records this
    /// first, because the webhook reads it.
    Confirming(Duration),
    /// There are no messages: tear the actor down.
    Empty,
    /// The namespace is being deleted, which must not be blocked, so queues that may hold messages stay at the broker.
    KeepQueues(KeptQueues),
}

/// The queues that stay at the broker, because their namespace is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptQueues {
    pub namespace_uid: Option<String>,
    pub queues: RemainingQueues,
}

/// The queues that hold messages, or may hold some, when their actor is being deleted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemainingQueues {
    pub with_messages: Vec<(QueueStatus, Depth)>,
    /// Queues whose message count is unknown.
    pub uncounted: Vec<QueueStatus>,
    /// Why the first of these is unknown.
    pub fault: Option<Fault>,
}

/// A queue of an actor that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueCount {
    pub queue: QueueStatus,
    pub messages: Messages,
}

/// The messages of a queue, as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub enum Messages {
    /// The queue does not exist, or belongs to another actor.
    NoQueue,
    Known(Depth),
    /// The broker has not counted them yet.
    Uncounted,
    /// The broker did not report them.
    Unknown(Fault),
}

impl KeptQueues {
    /// Keeps the queues if the namespace is being deleted or gone, which must not be blocked: those that may hold
    /// messages, and those whose broker went with the namespace, so that they cannot be deleted.
    pub fn of_terminating(namespace: Option<&Namespace>, queues: RemainingQueues) -> Option<Self> {
        let metadata = namespace.map(|it| &it.metadata);
        let is_terminating = metadata.is_none_or(|it| it.deletion_timestamp.is_some());
        is_terminating.then(|| Self {
            namespace_uid: metadata.and_then(|it| it.uid.clone()),
            queues,
        })
    }
}

impl RemainingQueues {
    /// `None` if all queues are known to be empty.
    pub fn of(queues: &[QueueCount]) -> Option<Self> {
        let mut remaining = Self::default();
        for QueueCount { queue, messages } in queues {
            match messages {
                Messages::Known(depth) if *depth != Depth::default() => {
                    remaining.with_messages.push((queue.clone(), *depth));
                }
                Messages::NoQueue | Messages::Known(_) => {}
                Messages::Uncounted => remaining.uncounted.push(queue.clone()),
                Messages::Unknown(fault) => {
                    remaining.uncounted.push(queue.clone());
                    remaining.fault = remaining.fault.or_else(|| Some(fault.clone()));
                }
            }
        }
        Some(remaining).filter(|it| *it != Self::default())
    }

    /// Describes what they hold, for messages.
    pub fn describe(&self) -> String {
        let counted = self.with_messages.iter().map(|(queue, depth)| {
            let QueueStatus {
                name, transport, ..
            } = queue;
            format!(
                "queue {name} on transport {transport} holds {}",
                format_depth(*depth)
            )
        });
        let uncounted = self.uncounted.iter().map(|queue| {
            let QueueStatus {
                name, transport, ..
            } = queue;
            format!(
                "queue {name} on transport {transport} may hold messages; they could not be counted"
            )
        });
        counted.chain(uncounted).collect::<Vec<_>>().join("; ")
    }
}

/// Formats a number of messages.
pub fn format_depth(depth: Depth) -> String {
    let Depth { queued, processing } = depth;
    let total = queued.saturating_add(processing);
    let plural = if total == 1 { "" } else { "s" };
    match processing {
        0 => format!("{total} message{plural}"),
        _ => format!("{total} message{plural} ({queued} waiting, {processing} unacknowledged)"),
    }
}
