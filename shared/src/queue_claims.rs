//! Queue names that an actor claims at brokers. If two actors resolved to the same queue, or one to the other's dead
//! letter queue, they would receive each other's messages (QUE-3, VAL-16). The order of a name's [`Claimants`] decides
//! which actor holds it.

mod claimants;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::config::TransportsConfig;

pub use claimants::{Age, Claimants, Rank};

/// Identifies a queue across transports, because two transports may use the same broker.
pub type BrokerAddress = Arc<str>;

/// The address of a queue at the broker of its transport.
#[must_use]
pub fn broker_address(
    transports: &TransportsConfig,
    transport: &str,
    queue: &str,
) -> BrokerAddress {
    let address = match transports.usable(transport) {
        Ok(transport) => transport.broker().address(queue),
        // The transport is not usable, so its broker is unknown.
        Err(_) => json!([transport, queue]),
    };
    address.to_string().into()
}

/// The purpose for which an actor uses a name. If it uses one name for several purposes, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimKind {
    /// A queue that the actor has left and that still holds messages (QUE-13).
    Retired,
    /// The actor's queue, or its queue before the spec changed.
    Queue,
    /// A dead letter queue.
    DeadLetters,
}

impl ClaimKind {
    /// Whether two actors can share a name for these uses: only as a dead letter queue.
    #[must_use]
    pub fn can_share_with(self, other: Self) -> bool {
        (self, other) == (Self::DeadLetters, Self::DeadLetters)
    }
}

/// How strong an actor's claim to a name is. The smallest value holds the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimPriority {
    /// The actor has left the queue, which still holds its messages (QUE-13).
    Retired,
    /// The actor's status names the queue, which holds its messages.
    InStatus,
    /// The actor's spec requests the queue.
    Requested,
    /// Same, but the broker marks the queue as another's, so this actor cannot have it. Such a claim does not keep
    /// another actor from the name: the queue may be that actor's (QUE-35).
    Refused,
}

impl ClaimPriority {
    /// The priority in the order of claimants, for an actor whose queue the broker may have refused.
    #[must_use]
    pub fn after_answer(self, refused: bool) -> Self {
        match self {
            Self::Requested if refused => Self::Refused,
            priority => priority,
        }
    }
}

/// A queue name that an actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedName {
    /// Where the queue is.
    pub address: BrokerAddress,
    /// The queue's name.
    pub queue: Box<str>,
    /// The purpose for which the actor uses it.
    pub kind: ClaimKind,
    /// How strong the actor's claim is.
    pub priority: ClaimPriority,
    /// Whether the actor's spec requests it.
    pub desired: bool,
}

/// A queue recorded in an actor's status.
#[derive(Clone, Copy, Debug)]
pub struct RecordedQueue<'a> {
    /// The transport's name.
    pub transport: &'a str,
    /// The queue's name.
    pub queue: &'a str,
    /// Dead letter queues of this queue alone, current or previous (QUE-14).
    pub dead_letters: &'a [String],
    /// Whether the actor has left it.
    pub retired: bool,
}

/// A queue as recorded in status.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StatusQueue {
    /// The transport's name.
    pub transport: Box<str>,
    /// The queue's name on that transport.
    pub name: Box<str>,
    /// Dead letter queues of this queue alone, current or previous.
    #[serde(default, rename = "deadLetters")]
    pub dead_letters: Box<[String]>,
    /// Whether it may not exist, or not be the actor's (QUE-13).
    #[serde(default)]
    pub unconfirmed: bool,
}

/// Queues recorded in a status as the actor's: those that it has left, then the one that was verified last.
pub fn recorded_queues<'a>(
    queue: Option<&'a StatusQueue>,
    retired: &'a [StatusQueue],
) -> impl Iterator<Item = RecordedQueue<'a>> {
    let retired = retired.iter().filter(|queue| !queue.unconfirmed);
    let retired = retired.map(|queue| (queue, true));
    let queues = retired.chain(queue.map(|queue| (queue, false)));
    queues.map(|(queue, retired)| RecordedQueue {
        transport: &queue.transport,
        queue: &queue.name,
        dead_letters: &queue.dead_letters,
        retired,
    })
}

/// Every name that an actor claims, each once. The queue that its spec requests comes first if the transport is usable.
#[must_use]
pub fn names<'a>(
    transports: &TransportsConfig,
    (namespace, actor): (&str, &str),
    transport: Option<&str>,
    known: impl IntoIterator<Item = RecordedQueue<'a>>,
) -> Vec<ClaimedName> {
    let mut names = Vec::new();
    if let Some(transport) = transport
        && let Ok(transport) = transports.usable(transport)
    {
        let queue = transport.names_of(namespace, actor).queue;
        let desired = RecordedQueue {
            transport: &transport.name,
            queue: &queue,
            dead_letters: &[],
            retired: false,
        };
        let priority = ClaimPriority::Requested;
        add(&mut names, transports, desired, ClaimKind::Queue, priority);
        for name in &mut names {
            name.desired = true;
        }
    }
    for known in known {
        let (kind, priority) = if known.retired {
            (ClaimKind::Retired, ClaimPriority::Retired)
        } else {
            (ClaimKind::Queue, ClaimPriority::InStatus)
        };
        add(&mut names, transports, known, kind, priority);
    }
    names
}

/// Adds a queue and its dead letter queues. A shared dead letter queue belongs to no actor, but no actor can use its
/// name for a queue.
fn add(
    names: &mut Vec<ClaimedName>,
    transports: &TransportsConfig,
    known: RecordedQueue<'_>,
    kind: ClaimKind,
    priority: ClaimPriority,
) {
    let RecordedQueue {
        transport, queue, ..
    } = known;
    let dlq = transports
        .usable(transport)
        .ok()
        .map(|transport| &transport.queues().dlq)
        .filter(|dlq| dlq.enabled)
        .map(|dlq| dlq.name_for(queue));
    let dlqs = dlq.into_iter().chain(known.dead_letters.iter().cloned());
    let dlqs = dlqs.map(|name| (name, ClaimKind::DeadLetters));
    for (name, kind) in [(queue.to_owned(), kind)].into_iter().chain(dlqs) {
        let address = broker_address(transports, transport, &name);
        match names.iter_mut().find(|known| known.address == address) {
            Some(known) => {
                known.kind = kind.min(known.kind);
                known.priority = priority.min(known.priority);
            }
            None => names.push(ClaimedName {
                address,
                queue: name.into(),
                kind,
                priority,
                desired: false,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUE-13, QUE-3
    #[test]
    fn queue_that_may_not_be_the_actors_is_no_claim() {
        let retired: Box<[StatusQueue]> = serde_json::from_value(json!([
            {"transport": "west", "name": "asya-a", "deadLetters": ["asya-a-dlq"]},
            {"transport": "north", "name": "asya-a", "unconfirmed": true},
        ]))
        .unwrap();
        let queue = serde_json::from_value(json!({"transport": "east", "name": "asya-a"})).unwrap();
        let recorded = recorded_queues(Some(&queue), &retired);
        let recorded: Vec<_> = recorded.map(|it| (it.transport, it.retired)).collect();
        assert_eq!(recorded, [("west", true), ("east", false)]);
    }
}
