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
    pub permission: DeletePermission,
}

/// Whether we may delete a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum DeletePermission {
    Allowed,
    /// Its transport sets `autoCreate: false`, so users create and delete its queues (QUE-7).
    UserManaged,
    /// It is the desired queue, under the name of another transport that points to the same broker.
    SameAsDesired,
    /// Another actor holds the name (QUE-3).
    HeldBy(Key),
    /// Unreachable: its transport is not usable any more.
    TransportUnusable(TransportUnusable),
}

/// Queues that no status names.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlistedQueues<'a> {
    /// Queues that are known to be the actor's.
    pub confirmed: &'a [QueueStatus],
    /// Queues that an earlier process may have created.
    pub maybe_created: &'a [QueueStatus],
}

/// Evidence that a queue is the actor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEvidence {
    /// Status names it, or this process has created it.
    Confirmed,
    /// The spec asks for it: it is ours only if it matches what we would have created.
    Desired,
    /// An earlier process may have created it on another transport (QUE-13): it is ours only if it is empty as well.
    /// The deletion does not wait for its broker.
    MaybeCreated,
}

/// All queues that an actor has or had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownQueues {
    /// The queue verified last, even if it is no longer desired.
    pub verified: Option<KnownQueue>,
    /// The desired queue, if it is not the verified one. It may exist although it was never verified.
    pub desired: Option<KnownQueue>,
    /// Retired queues (QUE-13).
    pub retired: Vec<KnownQueue>,
    /// Queues that an earlier process may have created on transports that the actor has left. Until one is found with
    /// the actor's tag, it neither claims a name nor blocks a deletion.
    pub maybe_created: Vec<QueueStatus>,
}

impl KnownQueues {
    /// Reads them from status; `holder_of` returns the other actor that holds a name, if any. Of the `unlisted` queues,
    /// the actor's are retired if it no longer uses them.
    pub fn from_status(
        status: &AsyncActorStatus,
        unlisted: UnlistedQueues<'_>,
        desired: Result<&Desired, &Fault>,
        transports: &TransportsConfig,
        holder_of: impl Fn(&QueueStatus) -> Option<Key>,
    ) -> Self {
        let known = |queue: &QueueStatus| KnownQueue {
            queue: queue.clone(),
            permission: match (transports.usable(&queue.transport), holder_of(queue)) {
                _ if desired.is_ok_and(|desired| is_renamed(queue, desired, transports)) => {
                    DeletePermission::SameAsDesired
                }
                (Err(unusable), _) => DeletePermission::TransportUnusable(unusable),
                (Ok(_), Some(holder)) => DeletePermission::HeldBy(holder),
                (Ok(transport), None) if transport.queues().auto_create => {
                    DeletePermission::Allowed
                }
                (Ok(_), None) => DeletePermission::UserManaged,
            },
        };
        let verified = status.queue.as_ref();
        let desired = desired.ok().map(Desired::queue);
        let (unconfirmed, retired): (Vec<_>, Vec<_>) =
            status.retired_queues.iter().partition(|it| it.unconfirmed);
        let recorded = || verified.into_iter().chain(retired.iter().copied());
        // No status shows that these are the actor's, so keep only what we may delete.
        let untracked = |queue: &QueueStatus, others: &[KnownQueue]| {
            let others = others.iter().map(|known| &known.queue);
            let mut all = recorded().chain(&desired).chain(others);
            let known = (!all.any(|it| it.is_same_queue(queue))).then(|| known(queue));
            known.filter(|known| known.permission == DeletePermission::Allowed)
        };
        let unlisted_retired = unlisted
            .confirmed
            .iter()
            .filter_map(|it| untracked(it, &[]));
        let retired: Vec<_> = retired
            .iter()
            .copied()
            .map(known)
            .chain(unlisted_retired)
            .collect();
        let mut possible: Vec<KnownQueue> = Vec::new();
        for queue in unlisted.maybe_created.iter().chain(unconfirmed) {
            let is_listed = possible.iter().any(|it| it.queue.is_same_queue(queue));
            possible.extend(untracked(queue, &retired).filter(|_| !is_listed));
        }
        Self {
            maybe_created: possible.into_iter().map(|known| known.queue).collect(),
            retired,
            desired: desired
                .as_ref()
                .filter(|queue| verified.is_none_or(|verified| !verified.is_same_queue(queue)))
                .map(known),
            verified: verified.map(known),
        }
    }

    /// The queues to delete with the actor (FIN-4), except those that it may not have had. An unreachable queue is
    /// included, because it blocks the deletion (FIN-3).
    pub fn to_delete(&self) -> impl Iterator<Item = (&QueueStatus, QueueEvidence)> {
        let confirmed = self.verified.iter().chain(&self.retired);
        let all = confirmed
            .map(|known| (known, QueueEvidence::Confirmed))
            .chain(
                self.desired
                    .iter()
                    .map(|known| (known, QueueEvidence::Desired)),
            );
        all.filter(|(known, _)| {
            matches!(
                known.permission,
                DeletePermission::Allowed | DeletePermission::TransportUnusable(_)
            )
        })
        .map(|(known, evidence)| (&known.queue, evidence))
    }
}

/// Whether a queue is the desired one and only its transport was renamed. Compares the configurations of both
/// transports or, if the old one is unusable, the hash that was verified.
fn is_renamed(queue: &QueueStatus, desired: &Desired, transports: &TransportsConfig) -> bool {
    let desired_queue = desired.queue();
    if queue.transport == desired_queue.transport || queue.name != desired_queue.name {
        return false;
    }
    match transports.usable(&queue.transport) {
        Ok(transport) => {
            transport.broker().address(&queue.name)
                == desired.transport.broker().address(&desired_queue.name)
        }
        Err(_) => queue.verified_hash.as_ref() == Some(&desired.queue_hash),
    }
}

/// Whether the addresses of two verified queues differ. The host is ignored, because the endpoint of an account can
/// change.
pub fn has_different_address(one: &QueueStatus, other: &QueueStatus) -> bool {
    fn path(queue: &QueueStatus) -> Option<&str> {
        let (_, rest) = queue.url.as_deref()?.split_once("://")?;
        rest.split_once('/').map(|(_, path)| path)
    }
    matches!((path(one), path(other)), (Some(one), Some(other)) if one != other)
}

/// Whether two transports point to the same queue, by the address recorded once both were used. Their configurations
/// may not show it: the account may be named in only one of them.
pub fn has_same_address(one: &QueueStatus, other: &QueueStatus) -> bool {
    one.url.is_some() && one.url == other.url
}
