//! The queues that an actor has or had according to status, and whether we may delete them.

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::config::{TransportUnusable, TransportsConfig};

use crate::fault::Fault;
use crate::reconcile::desired::Desired;
use crate::record::Key;

/// A queue, and whether we may delete it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownQueue {
    /// The queue as recorded in status.
    pub queue: QueueStatus,
    pub hold: Hold,
}

/// Whether we may delete a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// We may delete it.
    Ours,
    /// Its transport sets `autoCreate: false`, so users create and delete its queues (QUE-7).
    Theirs,
    /// It is the wanted queue, under the name of another transport that leads to the same broker.
    Wanted,
    /// Another actor owns the name (QUE-3).
    Lost(Key),
    /// Unreachable: its transport is not usable any more.
    OutOfReach(TransportUnusable),
}

/// All queues that an actor has or had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownQueues {
    /// The queue verified last, even if it is no longer wanted.
    pub verified: Option<KnownQueue>,
    /// The wanted queue, if it is not the verified one. It may exist although it was never verified.
    pub wanted: Option<KnownQueue>,
    /// Retired queues (QUE-13).
    pub retired: Vec<KnownQueue>,
}

impl KnownQueues {
    /// Reads them from status; `owner_of` returns the other actor that owns a name, if any.
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
    /// The queues to delete with the actor, and whether status names them (FIN-4). An unreachable queue is included,
    /// because it holds the deletion (FIN-3).
    pub fn to_delete(&self) -> impl Iterator<Item = (&QueueStatus, bool)> {
        let recorded = self.verified.iter().chain(&self.retired);
        let all = recorded
            .map(|known| (known, true))
            .chain(self.wanted.iter().map(|known| (known, false)));
        all.filter(|(known, _)| matches!(known.hold, Hold::Ours | Hold::OutOfReach(_)))
            .map(|(known, recorded)| (&known.queue, recorded))
    }
}

/// Whether a queue is the wanted one and only its transport was renamed. Compares the configurations of both transports
/// or, if the old one is unusable, the hash that was verified.
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

/// Whether the addresses of two verified queues differ. The host is ignored, because the endpoint of an account can
/// change.
pub fn is_elsewhere(one: &QueueStatus, other: &QueueStatus) -> bool {
    fn path(queue: &QueueStatus) -> Option<&str> {
        let (_, rest) = queue.url.as_deref()?.split_once("://")?;
        rest.split_once('/').map(|(_, path)| path)
    }
    matches!((path(one), path(other)), (Some(one), Some(other)) if one != other)
}

/// Whether both are the same queue by transport and name.
pub fn is_same(one: &QueueStatus, other: &QueueStatus) -> bool {
    (&one.transport, &one.name) == (&other.transport, &other.name)
}

/// Whether two transports lead to the same queue, by the address recorded once both were used. Their configurations may
/// not show it: the account may be named in only one of them.
pub fn has_same_address(one: &QueueStatus, other: &QueueStatus) -> bool {
    one.url.is_some() && one.url == other.url
}
