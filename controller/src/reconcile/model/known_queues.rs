//! The queues that an actor has or had, as status names them, and whether they are ours to delete.

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::config::{TransportUnusable, TransportsConfig};

use crate::fault::Fault;
use crate::reconcile::desired::Desired;
use crate::record::Key;

/// A queue, and whether it is ours to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownQueue {
    /// Where it is.
    pub queue: QueueStatus,
    /// Whether it is ours to delete.
    pub hold: Hold,
}

/// Whether a queue is ours to delete.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// It is.
    Ours,
    /// Its transport says `autoCreate: false`, so its users make and delete queues (QUE-7).
    Theirs,
    /// It is the queue that is wanted, by the name of another transport which leads to the same broker.
    Wanted,
    /// Another actor owns the name (QUE-3).
    Lost(Key),
    /// Nobody can reach it: its transport is not configured any more.
    OutOfReach(TransportUnusable),
}

/// All queues that an actor has or had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownQueues {
    /// The one that was verified last, whether or not it is still wanted.
    pub verified: Option<KnownQueue>,
    /// The one that is wanted, where another or none was verified: it may have been made all the same.
    pub wanted: Option<KnownQueue>,
    /// Those that are retired (QUE-13).
    pub retired: Vec<KnownQueue>,
}

impl KnownQueues {
    /// Reads a status; `owner_of` tells who owns a name before the actor, if anybody does.
    pub fn of(
        status: &AsyncActorStatus,
        desired: Result<&Desired, &Fault>,
        transports: &TransportsConfig,
        owner_of: impl Fn(&QueueStatus) -> Option<Key>,
    ) -> Self {
        let known = |queue: &QueueStatus| KnownQueue {
            queue: queue.clone(),
            hold: match (transports.usable(&queue.transport), owner_of(queue)) {
                _ if desired.is_ok_and(|desired| is_renamed(queue, desired, transports)) => {
                    Hold::Wanted
                }
                (Err(unusable), _) => Hold::OutOfReach(unusable),
                (Ok(_), Some(owner)) => Hold::Lost(owner),
                (Ok(transport), None) if transport.queues().auto_create => Hold::Ours,
                (Ok(_), None) => Hold::Theirs,
            },
        };
        let verified = status.queue.as_ref();
        let wanted = desired.ok().map(Desired::queue);
        Self {
            wanted: wanted
                .filter(|wanted| verified.is_none_or(|verified| !is_same(verified, wanted)))
                .as_ref()
                .map(known),
            verified: verified.map(known),
            retired: status.retired_queues.iter().map(known).collect(),
        }
    }
}

impl KnownQueues {
    /// Those that go with the actor, and whether status names them (FIN-4). What is not ours to delete is not among
    /// them. One that nobody can reach is: it holds the actor (FIN-3).
    pub fn to_delete(&self) -> impl Iterator<Item = (&QueueStatus, bool)> {
        let recorded = self.verified.iter().chain(&self.retired);
        let all = recorded
            .map(|known| (known, true))
            .chain(self.wanted.iter().map(|known| (known, false)));
        all.filter(|(known, _)| matches!(known.hold, Hold::Ours | Hold::OutOfReach(_)))
            .map(|(known, recorded)| (&known.queue, recorded))
    }
}

/// Whether a queue is the one that is wanted, and only its transport has another name: by the
/// configuration of both transports, or, where one is gone, by what was verified for it.
fn is_renamed(queue: &QueueStatus, desired: &Desired, transports: &TransportsConfig) -> bool {
    let wanted = desired.queue();
    if queue.transport == wanted.transport || queue.name != wanted.name {
        return false;
    }
    match transports.usable(&queue.transport) {
        Ok(transport) => {
            transport.broker().place(&queue.name) == desired.transport.broker().place(&wanted.name)
        }
        Err(_) => queue.verified_hash.as_ref() == Some(&desired.queue_hash),
    }
}

/// Whether two verified queues are in two places, as far as their addresses tell. The host is none of it: the endpoint
/// of an account can change.
pub fn is_elsewhere(one: &QueueStatus, other: &QueueStatus) -> bool {
    fn path(queue: &QueueStatus) -> Option<&str> {
        let (_, rest) = queue.url.as_deref()?.split_once("://")?;
        rest.split_once('/').map(|(_, path)| path)
    }
    matches!((path(one), path(other)), (Some(one), Some(other)) if one != other)
}

/// Whether two are one queue.
pub fn is_same(one: &QueueStatus, other: &QueueStatus) -> bool {
    (&one.transport, &one.name) == (&other.transport, &other.name)
}

/// Whether two transports lead to one queue, as its address shows once both have been used. Their configurations need
/// not: what identifies an account may be written in one of them only.
pub fn has_same_address(one: &QueueStatus, other: &QueueStatus) -> bool {
    one.url.is_some() && one.url == other.url
}
