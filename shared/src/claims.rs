//! The names that an actor claims at brokers. Two actors that resolve to one queue, or one to the other's
//! dead letter queue, would take each other's messages (QUE-3, VAL-16). Who of them owns it, an index knows.

use std::sync::Arc;

use crate::config::TransportsConfig;

/// A queue's name on a transport.
pub type Place = (Arc<str>, String);

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

/// A name that an actor claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Which name, and where.
    pub place: Place,
    /// What it is to the actor.
    pub use_: Use,
    /// Whether the actor's spec asks for it.
    pub wanted: bool,
}

/// Every name that an actor claims, each once; first the queue that its spec asks for, where that can be had.
/// `known` are queues that its status tells of, as transport, name and use.
#[must_use]
pub fn names<'a>(
    transports: &TransportsConfig,
    (namespace, actor): (&str, &str),
    transport: Option<&str>,
    known: impl IntoIterator<Item = (&'a str, &'a str, Use)>,
) -> Vec<Name> {
    let mut names = Vec::new();
    if let Some(transport) = transport
        && let Ok(transport) = transports.usable(transport)
    {
        let queue = transport.names_of(namespace, actor).queue;
        add(
            &mut names,
            transports,
            (&transport.name, &queue, Use::Queue),
        );
        for name in &mut names {
            name.wanted = true;
        }
    }
    for known in known {
        add(&mut names, transports, known);
    }
    names
}

/// With its dead letter queue: one that all share is nobody's own, but still no actor's queue.
fn add(
    names: &mut Vec<Name>,
    transports: &TransportsConfig,
    (transport, queue, use_): (&str, &str, Use),
) {
    let dlq = transports
        .usable(transport)
        .ok()
        .map(|transport| &transport.queues().dlq)
        .filter(|dlq| dlq.enabled)
        .map(|dlq| (dlq.name_for(queue), Use::DeadLetters));
    let on: Arc<str> = transport.into();
    for (name, use_) in [(queue.to_owned(), use_)].into_iter().chain(dlq) {
        let place = (Arc::clone(&on), name);
        match names.iter_mut().find(|known| known.place == place) {
            Some(known) => known.use_ = use_.min(known.use_),
            None => names.push(Name {
                place,
                use_,
                wanted: false,
            }),
        }
    }
}
