//! Whether an actor that is being deleted may be torn down, if that requires an empty queue (QUE-40).

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus, State};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;

use crate::broker::Depth;
use crate::broker::depths::ReportedDepth;
use crate::clock_skew::{may_have_passed, time_left};
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

/// Which message count to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountReport {
    /// The current count: status reports no count of this queue.
    Exact,
    /// The current count, which later reports start from. The Event at the start of the deletion is written only once,
    /// so it must not carry a stale count.
    Reset,
    /// The count that status may report now (QUE-20): small changes do not justify a write.
    AsReported,
}

impl CountReport {
    pub fn of(previous: &AsyncActorStatus, queue: &QueueStatus) -> Self {
        let is_current = previous
            .queue
            .as_ref()
            .is_none_or(|it| it.is_same_queue(queue));
        match previous.status {
            _ if !is_current => Self::Exact,
            Some(State::Terminating) => Self::AsReported,
            _ => Self::Reset,
        }
    }

    /// Whether to record the count, and if so, whether to drop earlier ones before.
    pub fn recording(self, messages: &Messages) -> Option<bool> {
        match (self, messages) {
            (Self::Exact, _) => None,
            (_, Messages::Known(depth)) if *depth != Depth::default() => Some(self == Self::Reset),
            _ => None,
        }
    }
}

impl Messages {
    /// The count to report; `report_count` returns what status reports once a count is recorded.
    pub fn reported(
        self,
        report: CountReport,
        report_count: impl FnOnce(Depth, bool) -> ReportedDepth,
    ) -> Self {
        let (Self::Known(depth), Some(reset)) = (&self, report.recording(&self)) else {
            return self;
        };
        match report_count(*depth, reset) {
            ReportedDepth::Depth(reported) if reported != Depth::default() => Self::Known(reported),
            _ => self,
        }
    }
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

/// Inputs to [`decide`].
pub struct DrainInputs<'a> {
    /// Every queue to delete with the actor.
    pub queues: &'a [QueueCount],
    /// Since when status reports that the deletion no longer waits for the queue.
    pub released_at: Option<Timestamp>,
    /// How far counts lag behind.
    pub lag: Duration,
    pub now: Timestamp,
}

/// Decides for an actor whose namespace is not being deleted.
pub fn decide(inputs: &DrainInputs<'_>) -> DrainState {
    let released_at = inputs
        .released_at
        .filter(|time| may_have_passed(*time, inputs.now));
    // An unreachable broker does not make the deletion wait again: the queue itself is still deleted only if it is
    // empty.
    let waits = |it: &RemainingQueues| !it.with_messages.is_empty() || released_at.is_none();
    if let Some(remaining) = RemainingQueues::of(inputs.queues).filter(waits) {
        return DrainState::Waiting(remaining);
    }
    let Some(since) = released_at else {
        return DrainState::Confirming(inputs.lag);
    };
    let ends = since.checked_add(inputs.lag).unwrap_or(Timestamp::MAX);
    time_left(ends, inputs.lag, inputs.now).map_or(DrainState::Empty, DrainState::Confirming)
}

/// Whether a target's pods may be replaced to inject the sidecar. Not while the deletion waits until the queue is empty
/// and some have it: the deletion has raised the generation, which would restart an ended rollout.
pub fn may_replace_pods(drain: Option<&DrainState>, injected: i32) -> bool {
    !matches!(drain, Some(DrainState::Waiting(_))) || injected == 0
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

#[cfg(test)]
mod tests;
