//! The status of an actor being deleted.

use asya_shared::api::{AsyncActorStatus, RolloutStatus, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::common::Report;
use super::conditions::Conditions;
use super::inventory;
use super::scaling::remembered_reference;
use crate::clock_skew::{may_have_passed, to_the_second};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::condition_types::{READY, TRANSPORT_READY};
use crate::reconcile::model::drain::DrainState;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Outcome;
use crate::reconcile::model::rollout::UNBIND_MARKER;

/// The faults that block the deletion.
#[derive(Default)]
pub(super) struct Blocked<'a> {
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

/// Reports an actor being deleted; `None` once it no longer exists.
pub(super) fn deletion_report(
    observed: &Observed,
    outcome: &Outcome,
    now: Timestamp,
) -> Option<Report> {
    let none = Blocked::default();
    let (blocked, deleted, changed_target, requeue) = match outcome {
        Outcome::Finalized | Outcome::Active(_) => return None,
        // Written once, when the deletion begins.
        Outcome::DeletionUnknown(requeue)
            if observed.previous.status == Some(State::Terminating) =>
        {
            return Some(Report {
                status: observed.previous.clone(),
                requeue: *requeue,
                events: Vec::new(),
            });
        }
        Outcome::DeletionUnknown(requeue) => (none, &[][..], false, *requeue),
        Outcome::Deleting {
            fault,
            deleted,
            requeue,
            changed_target,
        } => {
            let blocked = Blocked::from_fault(fault.as_ref());
            (blocked, &deleted[..], *changed_target, *requeue)
        }
        Outcome::DeletionBlocked { fault, .. } => {
            let other = Some(fault);
            (Blocked { other, ..none }, &[][..], false, fault.requeue)
        }
    };
    Some(Report {
        status: deletion_status(observed, &blocked, deleted, changed_target, now),
        requeue,
        events: Vec::new(),
    })
}

/// Builds the status of an actor being deleted.
pub(super) fn deletion_status(
    observed: &Observed,
    blocked: &Blocked<'_>,
    deleted: &[&str],
    changed_target: bool,
    now: Timestamp,
) -> AsyncActorStatus {
    let mut status = AsyncActorStatus {
        status: Some(State::Terminating),
        observed_generation: Some(observed.actor.generation),
        orphaned: observed.deletion.orphans.then_some(true),
        ..observed.previous.clone()
    };
    if changed_target {
        status.rollout = Some(last_action_status(observed, now));
    }
    if observed.binding.is_some() {
        // The target is scaled up once the `ScaledObject` is gone (SO-6).
        status.scaled_object_ref = remembered_reference(observed);
    }
    let mut conditions = Conditions::of(observed, now);
    if let Some(fault) = blocked.queue {
        conditions.set(TRANSPORT_READY, false, fault.reason, &fault.message);
    }
    let (reason, text) = match blocked.other {
        Some(fault) => (fault.reason, &*fault.message),
        None => (Reason::Terminating, "the actor is being deleted"),
    };
    conditions.set(READY, false, reason, text);
    if matches!(observed.drain, Some(DrainState::Confirming(_))) {
        // Second precision, as stored.
        let since = to_the_second(now);
        let recorded = status.queue_released_since.take();
        let recorded = recorded.filter(|time| may_have_passed(time.0, now));
        status.queue_released_since = Some(recorded.unwrap_or(Time(since)));
    }
    status.conditions = conditions.list;
    // A changed inventory alone is not worth a write (FW-25).
    if status != observed.previous {
        status.inventory = inventory::of_deletion(observed, deleted);
    }
    status
}

/// Records when unbinding last acted (fields given up or changed, or a pod evicted), and the pods at that time.
fn last_action_status(observed: &Observed, now: Timestamp) -> RolloutStatus {
    let now = to_the_second(now);
    RolloutStatus {
        value: UNBIND_MARKER.to_owned(),
        since: Some(Time(now)),
        pods: observed
            .unbinding()
            .and_then(|it| it.availability.as_ref())
            .map(|it| it.active),
        ..RolloutStatus::default()
    }
}
