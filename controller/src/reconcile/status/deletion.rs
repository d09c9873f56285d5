//! The status of an actor being deleted.

use asya_shared::api::{AsyncActorStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::conditions::Conditions;
use super::{binding, inventory};
use crate::fault::{Fault, Reason};
use crate::reconcile::desired::drain::Drain;
use crate::reconcile::model::condition_types::{READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::status_time::to_the_second;

/// What blocks the deletion.
#[derive(Default)]
pub(super) struct Blocked<'a> {
    /// A fault of the queue.
    pub(super) queue: Option<&'a Fault>,
    /// Any other fault.
    pub(super) other: Option<&'a Fault>,
}

impl<'a> Blocked<'a> {
    /// Classifies the fault of a deletion.
    pub(super) fn from_fault(fault: Option<&'a Fault>) -> Self {
        let is_unbind_blocked = |fault: &&Fault| fault.reason == Reason::UnbindBlocked;
        Self {
            queue: fault.filter(|fault| !is_unbind_blocked(fault)),
            other: fault.filter(is_unbind_blocked),
        }
    }
}

/// Builds the status of an actor being deleted.
pub(super) fn deletion_status(
    observed: &Observed,
    blocked: &Blocked<'_>,
    deleted: &[&str],
    disowned: bool,
    now: Timestamp,
) -> AsyncActorStatus {
    let mut status = AsyncActorStatus {
        status: Some(State::Terminating),
        observed_generation: Some(observed.actor.generation),
        ..observed.previous.clone()
    };
    let mut conditions = Conditions::of(observed, now);
    if let Some(fault) = blocked.queue {
        conditions.set(TRANSPORT_READY, Some(false), fault.reason, &fault.message);
    }
    let (reason, text) = match blocked.other {
        Some(fault) => (fault.reason, &*fault.message),
        None => (Reason::Terminating, "the actor is being deleted"),
    };
    conditions.set(READY, Some(false), reason, text);
    if matches!(observed.drain, Some(Drain::Confirming(_))) {
        // Second precision, as stored.
        let since = to_the_second(now);
        status.queue_released_since.get_or_insert(Time(since));
    }
    if disowned {
        status.rollout = Some(binding::disowned_status(observed, now));
    }
    status.conditions = conditions.list;
    // A changed inventory alone is not worth a write (FW-25).
    if status != observed.previous {
        status.inventory = inventory::of_deletion(observed, deleted);
    }
    status
}
