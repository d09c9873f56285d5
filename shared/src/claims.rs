//! Queue names that an actor claims at brokers. If two actors resolved to the same queue, or one to the other's dead
//! letter queue, they would receive each other's messages (QUE-3, VAL-16). The order of a name's [`Users`] decides
//! which actor owns it.

mod users;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::config::TransportsConfig;

pub use users::{Age, Rank, Users};

/// Identifies a queue across transports, because two transports may use the same broker.
pub type Place = Arc<str>;

/// The place of a transport's queue.
#[must_use]
pub fn place(transports: &TransportsConfig, transport: &str, queue: &str) -> Place {
    let place = match transports.usable(transport) {
        Ok(transport) => transport.broker().place(queue),
        // The transport is not usable, so its broker is unknown.
        Err(_) => json!([transport, queue]),
    };
    place.to_string().into()
}

/// What an actor uses a name for. If it uses one name for several purposes, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A queue that the actor has left and that still holds messages (QUE-13).
    Retired,
    /// The actor's queue, or its queue before the spec changed.
    Queue,
    /// A dead letter queue.
    DeadLetters,
}

impl Use {
    /// Whether two actors can share a name for these uses: only as a dead letter queue.
    #[must_use]
    pub fn is_shared_with(self, other: Self) -> bool {
        (self, other) == (Self::DeadLetters, Self::DeadLetters)
    }
}

/// How strong an actor's claim to a name is. The smallest value owns the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grip {
    /// The actor has left the queue, which still holds its messages (QUE-13).
    Left,
    /// The actor's status names the queue, which holds its messages.
    Has,
    /// The actor's spec requests the queue.
    Wants,
}

/// A queue name that an actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Where the queue is.
    pub place: Place,
    /// The queue's name.
    pub queue: Box<str>,
    /// What the actor uses it for.
    pub use_: Use,
    /// How strong the actor's claim is.
    pub grip: Grip,
    /// Whether the actor's spec requests it.
    pub wanted: bool,
}

/// A queue recorded in an actor's status.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The transport's name.
    pub transport: &'a str,
    /// The queue's name.
    pub queue: &'a str,
    /// Dead letter queues of this queue alone, current or former (QUE-14).
    pub dead_letters: &'a [String],
    /// Whether the actor has left it.
    pub retired: bool,
}

/// A queue as recorded in status.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct QueueName {
    /// The transport's name.
    pub transport: Box<str>,
    /// The queue's name on that transport.
    pub name: Box<str>,
    /// Dead letter queues of this queue alone, current or former.
    #[serde(default, rename = "deadLetters")]
    pub dead_letters: Box<[String]>,
}

/// Queues recorded in a status: those that the actor has left, then the one that was verified last.
pub fn known<'a>(
    queue: Option<&'a QueueName>,
    retired: &'a [QueueName],
) -> impl Iterator<Item = Known<'a>> {
    let retired = retired.iter().map(|queue| (queue, true));
    let queues = retired.chain(queue.map(|queue| (queue, false)));
    queues.map(|(queue, retired)| Known {
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
    known: impl IntoIterator<Item = Known<'a>>,
) -> Vec<Name> {
    let mut names = Vec::new();
    if let Some(transport) = transport
        && let Ok(transport) = transports.usable(transport)
    {
        let queue = transport.names_of(namespace, actor).queue;
        let wanted = Known {
            transport: &transport.name,
            queue: &queue,
            dead_letters: &[],
            retired: false,
        };
        add(&mut names, transports, wanted, (Use::Queue, Grip::Wants));
        for name in &mut names {
            name.wanted = true;
        }
    }
    for known in known {
        let held = if known.retired {
            (Use::Retired, Grip::Left)
        } else {
            (Use::Queue, Grip::Has)
        };
        add(&mut names, transports, known, held);
    }
    names
}

/// Adds a queue and its dead letter queues. A shared dead letter queue belongs to no actor, but no actor can use its
/// name for a queue.
fn add(
    names: &mut Vec<Name>,
    transports: &TransportsConfig,
    known: Known<'_>,
    (use_, grip): (Use, Grip),
) {
    let Known {
        transport, queue, ..
    } = known;
    let dlq = transports
        .usable(transport)
        .ok()
        .map(|transport| &transport.queues().dlq)
        .filter(|dlq| dlq.enabled)
        .map(|dlq| dlq.name_for(queue));
    let dlqs = dlq.into_iter().chain(known.dead_letters.iter().cloned());
    let dlqs = dlqs.map(|name| (name, Use::DeadLetters));
    for (name, use_) in [(queue.to_owned(), use_)].into_iter().chain(dlqs) {
        let place = place(transports, transport, &name);
        match names.iter_mut().find(|known| known.place == place) {
            Some(known) => {
                known.use_ = use_.min(known.use_);
                known.grip = grip.min(known.grip);
            }
            None => names.push(Name {
                place,
                queue: name.into(),
                use_,
                grip,
                wanted: false,
            }),
        }
    }
}
