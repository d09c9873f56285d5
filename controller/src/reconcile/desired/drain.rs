//! Whether an actor that is being deleted may go, where it goes only with an empty queue (QUE-40).

use std::time::Duration;

use asya_shared::api::QueueStatus;
use k8s_openapi::jiff::Timestamp;

use crate::broker::Depth;
use crate::fault::Fault;

/// How far the deletion is that waits for an empty queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Drain {
    /// A queue holds messages, or nobody can tell: nothing is taken down.
    Works(Held),
    /// No messages were seen. Status says so first, because the webhook reads it, and after this time no messages
    /// must be seen again: counts lag.
    Confirms(Duration),
    /// There are no messages: the actor goes.
    Empty,
    /// The namespace is being deleted, which nobody may hold up: queues that may hold messages stay.
    Abandoned {
        /// The namespace.
        namespace_uid: Option<String>,
        /// What stays.
        held: Held,
    },
}

/// The queues that hold an actor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Those with messages.
    pub full: Vec<(QueueStatus, Depth)>,
    /// Those that could not be looked at, by name.
    pub unseen: Vec<QueueStatus>,
    /// Why the first of these could not.
    pub fault: Option<Fault>,
}

/// A queue of an actor that goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The queue.
    pub queue: QueueStatus,
    /// Its messages.
    pub messages: Messages,
}

/// What is known of a queue's messages.
#[derive(Clone, Debug, PartialEq)]
pub enum Messages {
    /// There is no such queue, or it is another actor's.
    NoQueue,
    /// So many.
    Known(Depth),
    /// The broker has not counted them yet.
    Uncounted,
    /// The broker does not say.
    Unknown(Fault),
}

/// All that decides.
pub struct Facts<'a> {
    /// Every queue that is to go with the actor.
    pub queues: &'a [Counted],
    /// Since when status says that the deletion does not wait any more.
    pub released: Option<Timestamp>,
    /// How much the counts lag behind.
    pub lag: Duration,
    /// Now.
    pub now: Timestamp,
}

/// Decides for a namespace that stays.
pub fn decide(facts: &Facts<'_>) -> Drain {
    let held = Held::of(facts.queues);
    // Once the pods go, a broker that does not answer does not bring them back: the queue itself is still deleted
    // only if it is empty.
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

/// Whether pods of a target may be replaced to give them the sidecar. Not while the actor is going and some have it:
/// the deletion has raised the generation, which would start a rollout again that was given up.
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

    /// What they hold, for messages.
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

/// A number of messages in words.
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
