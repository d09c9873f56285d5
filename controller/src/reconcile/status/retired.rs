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
    let inputs = RetiredInputs {
        observed,
        queue,
        checked,
        retains_queues: observed.keeps_queues(),
    };
    let mut report = RetiredReport::default();
    inputs.add_retired(&mut report);
    inputs.add_replaced(&mut report);
    inputs.add_maybe_created(&mut report);
    report
}

struct RetiredInputs<'a> {
    observed: &'a Observed,
    /// The queue that the actor uses now.
    queue: Option<&'a QueueStatus>,
    checked: &'a RetiredQueues,
    retains_queues: bool,
}

impl RetiredInputs<'_> {
    fn is_current(&self, known: &QueueStatus) -> bool {
        let current = self.queue;
        current.is_some_and(|queue| queue.is_same_queue(known) || has_same_address(queue, known))
    }

    /// The desired name in another account is another queue, even if that account is no longer configured.
    fn is_desired(&self, known: &KnownQueue) -> bool {
        let moved = self
            .queue
            .is_some_and(|queue| has_different_address(queue, &known.queue));
        known.permission == DeletePermission::SameAsDesired && !moved
    }

    /// Queues that were retired before.
    fn add_retired(&self, report: &mut RetiredReport) {
        let retired = self.observed.queues.retired.iter().filter(|known| {
            !is_in(&self.checked.forgettable, &known.queue)
                && !self.is_current(&known.queue)
                && !self.is_desired(known)
        });
        for known in retired {
            match kept_because(known, self.retains_queues) {
                None => report.queues.push(known.queue.clone()),
                Some(reason) => report
                    .messages
                    .push(retirement_message(&known.queue, &reason)),
            }
        }
    }

    /// The queue verified last, if another one is verified now.
    fn add_replaced(&self, report: &mut RetiredReport) {
        let replaced = self.observed.queues.verified.as_ref().filter(|replaced| {
            self.queue.is_some() && !self.is_desired(replaced) && !self.is_current(&replaced.queue)
        });
        let Some(replaced) = replaced else {
            return;
        };
        let reason = kept_because(replaced, self.retains_queues);
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

    /// Queues that an earlier process may have created.
    fn add_maybe_created(&self, report: &mut RetiredReport) {
        if self.retains_queues {
            return;
        }
        let generation = Some(self.observed.actor.generation);
        let is_verified = self
            .queue
            .is_some_and(|queue| queue.verified_generation == generation);
        let possible = self.observed.queues.maybe_created.iter();
        let possible =
            possible.filter(|it| !is_in(&self.checked.forgettable, it) && !self.is_current(it));
        for known in possible {
            let confirmed = is_in(&self.checked.confirmed, known);
            // A new process looks it up again in any case until the queue is verified for the current spec.
            if confirmed || known.unconfirmed || is_verified {
                report.queues.push(QueueStatus {
                    unconfirmed: !confirmed,
                    ..known.clone()
                });
            }
        }
    }
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
