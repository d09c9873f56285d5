//! Reports the queues that an actor no longer uses (QUE-13).

use asya_shared::api::QueueStatus;

use crate::reconcile::model::known_queues::{
    DeletePermission, KnownQueue, has_different_address, has_same_address,
};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::RetiredQueues;

/// The retired queues of an actor after a reconcile.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RetiredReport {
    /// Queues to delete once they are empty.
    pub(super) queues: Vec<QueueStatus>,
    /// Messages for users.
    pub(super) messages: Vec<String>,
}

/// The retired queues for status, given the actor's current `queue` and the result of their check.
pub(super) fn list(
    observed: &Observed,
    queue: Option<&QueueStatus>,
    checked: &RetiredQueues,
) -> RetiredReport {
    let is_current = |known: &QueueStatus| {
        queue.is_some_and(|queue| queue.is_same_queue(known) || has_same_address(queue, known))
    };
    // The desired name in another account is another queue, even if that account is no longer configured.
    let is_desired = |known: &KnownQueue| {
        let moved = queue.is_some_and(|queue| has_different_address(queue, &known.queue));
        known.permission == DeletePermission::SameAsDesired && !moved
    };
    let retains_queues = observed.keeps_queues();
    let mut report = RetiredReport::default();
    for known in &observed.queues.retired {
        if is_in(&checked.forgettable, &known.queue)
            || is_current(&known.queue)
            || is_desired(known)
        {
            continue;
        }
        match kept_because(known, retains_queues) {
            None => report.queues.push(known.queue.clone()),
            Some(reason) => report
                .messages
                .push(retirement_message(&known.queue, &reason)),
        }
    }
    let replaced = observed.queues.verified.as_ref();
    let replaced =
        replaced.filter(|replaced| !is_desired(replaced) && !is_current(&replaced.queue));
    if let Some(replaced) = replaced.filter(|_| queue.is_some()) {
        let reason = kept_because(replaced, retains_queues);
        let outcome = reason.as_deref().unwrap_or(DELETED_WHEN_EMPTY);
        report
            .messages
            .push(retirement_message(&replaced.queue, outcome));
        if reason.is_none() {
            report.queues.push(QueueStatus {
                verified_generation: None,
                ..replaced.queue.clone()
            });
        }
    }
    let possible = observed.queues.maybe_created.iter();
    let possible = possible.filter(|it| !is_in(&checked.forgettable, it) && !is_current(it));
    let of_current_spec =
        |queue: &QueueStatus| queue.verified_generation == Some(observed.actor.generation);
    for known in possible.filter(|_| !retains_queues) {
        let confirmed = is_in(&checked.confirmed, known);
        // A new process looks it up again in any case until the queue is verified for the current spec.
        let is_needed = known.unconfirmed || queue.is_some_and(of_current_spec);
        if confirmed || is_needed {
            report.queues.push(QueueStatus {
                unconfirmed: !confirmed,
                ..known.clone()
            });
        }
    }
    report
}

fn is_in(queues: &[QueueStatus], queue: &QueueStatus) -> bool {
    queues.iter().any(|it| it.is_same_queue(queue))
}

const DELETED_WHEN_EMPTY: &str = "it is deleted once it is empty, or with this actor at the latest";

fn retirement_message(queue: &QueueStatus, outcome: &str) -> String {
    let QueueStatus {
        name, transport, ..
    } = queue;
    format!("queue {name} on transport {transport} is no longer used by this actor: {outcome}")
}

/// Why a queue is kept; `None` if it is deleted as soon as possible.
fn kept_because(known: &KnownQueue, retains_queues: bool) -> Option<String> {
    match &known.permission {
        DeletePermission::HeldBy(owner) => Some(format!("it belongs to {owner}")),
        DeletePermission::UserManaged => {
            Some("it is kept, because the transport has autoCreate: false".to_owned())
        }
        _ if retains_queues => {
            Some("it is kept, because queue.deletionPolicy is Retain".to_owned())
        }
        DeletePermission::Allowed
        | DeletePermission::SameAsDesired
        | DeletePermission::TransportUnusable(_) => None,
    }
}

#[cfg(test)]
mod tests;
