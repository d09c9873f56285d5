//! The names that an actor claims at brokers. Two actors that resolve to one queue, or one to the other's
//! dead letter queue, would take each other's messages (QUE-3, VAL-16). Which of them owns it is up to the order of
//! the name's [`Users`].

mod users;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::config::TransportsConfig;

pub use users::{Age, Rank, Users};

/// Where a queue of some name is: two transports may lead to one broker.
pub type Place = Arc<str>;

/// Where the queue of this name is that a transport holds.
#[must_use]
pub fn place(transports: &TransportsConfig, transport: &str, queue: &str) -> Place {
    let place = match transports.usable(transport) {
        Ok(transport) => transport.broker().place(queue),
        // Nobody knows any more which broker that was.
        Err(_) => json!([transport, queue]),
    };
    place.to_string().into()
}

/// What a name is to an actor. Of several uses of one name the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It holds messages of a queue that the actor has left (QUE-13).
    Retired,
    /// The actor's queue, or what was so before its spec changed.
    Queue,
    /// Messages that failed too often go there.
    DeadLetters,
}

impl Use {
    /// Whether two actors can use one name so: only as the dead letter queue of both.
    #[must_use]
    pub fn is_shared_with(self, other: Self) -> bool {
        (self, other) == (Self::DeadLetters, Self::DeadLetters)
    }
}

/// How firmly an actor holds a name. Of two the smaller owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grip {
    /// Messages of a queue that it has left are there (QUE-13).
    Left,
    /// Its status names the queue: its messages are there.
    Has,
    /// Its spec asks for it.
    Wants,
}

/// A name that an actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Where it is.
    pub place: Place,
    /// The name.
    pub queue: Box<str>,
    /// What it is to the actor.
    pub use_: Use,
    /// How firmly the actor holds it.
    pub grip: Grip,
    /// Whether the actor's spec asks for it.
    pub wanted: bool,
}

/// A queue that an actor's status tells of.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Its transport.
    pub transport: &'a str,
    /// Its name.
    pub queue: &'a str,
    /// Dead letter queues of its own that it has or had (QUE-14).
    pub dead_letters: &'a [String],
    /// Whether the actor has left it.
    pub retired: bool,
}

/// A queue at a broker, as a status names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct QueueName {
    /// The transport.
    pub transport: Box<str>,
    /// Its name there.
    pub name: Box<str>,
    /// Dead letter queues of its own that it has or had.
    #[serde(default, rename = "deadLetters")]
    pub dead_letters: Box<[String]>,
}

/// What a status tells: the queue that was verified last, and those that the actor has left.
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

/// Every name that an actor claims, each once; first the queue that its spec asks for, where that can be had.
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

/// With its dead letter queues: one that all share is nobody's own, but still no actor's queue.
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
