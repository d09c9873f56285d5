//! What is told of others who change the objects of an actor whose workload we make (WRK-8).

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::jiff::Timestamp;

use super::CONFLICT;
use super::conditions::Conditions;
use crate::events::Note;
use crate::reconcile::apply::Ensured;
use crate::reconcile::conflict::ledger;
use crate::reconcile::conflict::restoring;
use crate::reconcile::observe::Observed;
use crate::reconcile::{Reason, Retry};

/// What there is to do about it after the pass.
pub(super) struct OfRivals {
    pub(super) retry: Vec<Retry>,
    pub(super) notes: Vec<(Note, String)>,
}

/// Tells how often that was so.
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
        status.conflict_count = Some(ledger::count(&status.conflicts));
        status.last_conflict_time = ledger::last(&status.conflicts);
    }
    let waits = [contests.again, restoring::again(&status.conflicts, now)];
    let told = restoring::told(&status.conflicts, base).filter(|_| !contests.restored.is_empty());
    OfRivals {
        retry: waits.into_iter().flatten().map(Retry::After).collect(),
        notes: told
            .map(|text| (Note::FieldConflict, text))
            .into_iter()
            .collect(),
    }
}

/// Condition `Conflict`, which is there while what others change is left to them for a while.
pub(super) fn set(status: &mut AsyncActorStatus, observed: &Observed, now: Timestamp) {
    let mut conditions = Conditions::of(observed, now);
    conditions.list = std::mem::take(&mut status.conditions);
    match restoring::told(&status.conflicts, observed.deadlines.conflict) {
        Some(text) => conditions.set(CONFLICT, Some(true), Reason::FieldConflict, &text),
        None => conditions.remove(CONFLICT),
    }
    status.conditions = conditions.list;
}
