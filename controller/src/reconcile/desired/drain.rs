//! Whether an actor that is being deleted may be torn down, if that requires an empty queue (QUE-40).

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus, State};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;

use crate::broker::Depth;
use crate::broker::depths::ReportedDepth;
use crate::fault::Fault;
use crate::reconcile::model::known_queues::is_same;

/// Progress of a deletion that waits for an empty queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Drain {
    /// A queue holds messages, or may hold some: tear nothing down.
    Works(Held),
    /// No messages were seen. Counts lag, so none must be seen again after this delay. Status says so first, because
    /// the webhook reads it.
    Confirms(Duration),
    /// There are no messages: tear the actor down.
    Empty,
    /// The namespace is being deleted, which must not be held up: queues that may hold messages stay.
    Abandoned {
        /// UID of the namespace.
        namespace_uid: Option<String>,
        /// The queues that stay.
        held: Held,
    },
}

/// The queues that hold up the deletion of an actor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Queues with messages.
    pub full: Vec<(QueueStatus, Depth)>,
    /// Queues whose messages are unknown.
    pub unseen: Vec<QueueStatus>,
    /// Why the first of these is unknown.
    pub fault: Option<Fault>,
}

/// A queue of an actor that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    pub queue: QueueStatus,
    pub messages: Messages,
}

/// What is known of a queue's messages.
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
    Anew,
    /// The count that status may report now (QUE-20): small changes do not justify a write.
    AsReported,
}

impl CountReport {
    pub fn of(previous: &AsyncActorStatus, queue: &QueueStatus) -> Self {
        let serves = previous.queue.as_ref().is_none_or(|it| is_same(it, queue));
        match previous.status {
            _ if !serves => Self::Exact,
            Some(State::Terminating) => Self::AsReported,
            _ => Self::Anew,
        }
    }

    /// Whether to record the count, and if so, whether to drop earlier ones before.
    pub fn records(self, messages: &Messages) -> Option<bool> {
        match (self, messages) {
            (Self::Exact, _) => None,
            (_, Messages::Known(depth)) if *depth != Depth::default() => Some(self == Self::Anew),
            _ => None,
        }
    }
}

impl Messages {
    /// The count to report; `told` is what status reports once a count is recorded.
    pub fn reported(
        self,
        report: CountReport,
        told: impl FnOnce(Depth, bool) -> ReportedDepth,
    ) -> Self {
        let (Self::Known(depth), Some(anew)) = (&self, report.records(&self)) else {
            return self;
        };
        match told(*depth, anew) {
            ReportedDepth::Depth(told) if told != Depth::default() => Self::Known(told),
            _ => self,
        }
    }
}

impl Drain {
    /// A namespace that is being deleted must not be held up: queues that may hold messages stay.
    pub fn unless_ending(self, namespace: Option<&Namespace>) -> Self {
        let metadata = namespace.map(|it| &it.metadata);
        match self {
            Self::Works(held) if metadata.is_none_or(|it| it.deletion_timestamp.is_some()) => {
                Self::Abandoned {
                    namespace_uid: metadata.and_then(|it| it.uid.clone()),
                    held,
                }
            }
            drain => drain,
        }
    }
}

/// Inputs to [`decide`].
pub struct DrainFacts<'a> {
    /// Every queue to delete with the actor.
    pub queues: &'a [Counted],
    /// Since when status says that the deletion no longer waits.
    pub released: Option<Timestamp>,
    /// How far counts lag behind.
    pub lag: Duration,
    pub now: Timestamp,
}

/// Decides for an actor whose namespace is not being deleted.
pub fn decide(facts: &DrainFacts<'_>) -> Drain {
    let held = Held::of(facts.queues);
    // After release, a broker that does not answer brings no pods back: the queue itself is still deleted only if it is
    // empty.
    let unsure = !held.unseen.is_empty() && facts.released.is_none();
    if !held.full.is_empty() || unsure {
        return Drain::Works(held);
    }
    let Some(since) = facts.released else {
        return Drain::Confirms(facts.lag);
    };
    let ends = since.checked_add(facts.lag).unwrap_or(Timestamp::MAX);
    match Duration::try_from(ends.duration_since(facts.now)) {
        Ok(left) if !left.is_zero() => Drain::Confirms(left),
        _ => Drain::Empty,
    }
}

/// Whether a target's pods may be replaced to inject the sidecar. Not while the actor is draining and some have it: the
/// deletion has raised the generation, which would restart a rollout that was given up.
pub fn may_roll(drain: Option<&Drain>, injected: i32) -> bool {
    !matches!(drain, Some(Drain::Works(_))) || injected == 0
}

impl Held {
    fn of(queues: &[Counted]) -> Self {
        let mut held = Self::default();
        for Counted { queue, messages } in queues {
            match messages {
                Messages::Known(depth) if *depth != Depth::default() => {
                    held.full.push((queue.clone(), *depth));
                }
                Messages::NoQueue | Messages::Known(_) => {}
                Messages::Uncounted => held.unseen.push(queue.clone()),
                Messages::Unknown(fault) => {
                    held.unseen.push(queue.clone());
                    held.fault = held.fault.or_else(|| Some(fault.clone()));
                }
            }
        }
        held
    }

    /// Describes what they hold, for messages.
    pub fn text(&self) -> String {
        let full = self.full.iter().map(|(queue, depth)| {
            let QueueStatus {
                name, transport, ..
            } = queue;
            format!(
                "queue {name} on transport {transport} holds {}",
                text(*depth)
            )
        });
        let unseen = self.unseen.iter().map(|queue| {
            let QueueStatus {
                name, transport, ..
            } = queue;
            format!(
                "queue {name} on transport {transport} may hold messages, nobody could count them"
            )
        });
        full.chain(unseen).collect::<Vec<_>>().join("; ")
    }
}

/// Formats a number of messages.
pub fn text(depth: Depth) -> String {
    let Depth { queued, processing } = depth;
    let all = queued.saturating_add(processing);
    let plural = if all == 1 { "" } else { "s" };
    match processing {
        0 => format!("{all} message{plural}"),
        _ => format!("{all} message{plural} ({queued} waiting, {processing} unacknowledged)"),
    }
}

#[cfg(test)]
mod tests;
