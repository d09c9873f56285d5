//! Reports others that change the objects of a standalone actor (WRK-8).

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::jiff::Timestamp;

use super::conditions::Conditions;
use crate::fault::{Reason, Requeue};
use crate::reconcile::contention::{history, restoring};
use crate::reconcile::model::condition_types::CONFLICT;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Ensured;
use crate::telemetry::events::EventReason;

/// The requeues and Events that follow.
pub(super) struct OfRivals {
    pub(super) retry: Vec<Requeue>,
    pub(super) notes: Vec<(EventReason, String)>,
}

/// Writes the conflicts, their count and the time of the last one.
pub(super) fn tell(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    ensured: &Ensured,
    now: Timestamp,
) -> OfRivals {
    let (before, base) = (&observed.previous.conflicts, observed.deadlines.conflict);
    let contests = &ensured.contests;
    status.conflicts = restoring::follow(before, &contests.restored, base, now);
    if !status.conflicts.is_empty() {
        status.conflict_count = Some(history::count(&status.conflicts));
        status.last_conflict_time = history::last(&status.conflicts);
    }
    let waits = [contests.again, restoring::again(&status.conflicts, now)];
    let told = restoring::told(&status.conflicts, base).filter(|_| !contests.restored.is_empty());
    OfRivals {
        retry: waits.into_iter().flatten().map(Requeue::After).collect(),
        notes: told
            .map(|text| (EventReason::FieldConflict, text))
            .into_iter()
            .collect(),
    }
}

/// Condition `Conflict`, present while changes of others are not restored for a while.
pub(super) fn set(status: &mut AsyncActorStatus, observed: &Observed, now: Timestamp) {
    let mut conditions = Conditions::of(observed, now);
    conditions.list = std::mem::take(&mut status.conditions);
    match restoring::told(&status.conflicts, observed.deadlines.conflict) {
        Some(text) => conditions.set(CONFLICT, Some(true), Reason::FieldConflict, &text),
        None => conditions.remove(CONFLICT),
    }
    status.conditions = conditions.list;
}
