//! Reports changes by other field managers to the objects of a standalone actor (WRK-8).

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::jiff::Timestamp;

use super::conditions::Conditions;
use crate::fault::{Reason, Requeue};
use crate::reconcile::contention::{drift_restore, history};
use crate::reconcile::model::condition_types::CONFLICT;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::ActiveOutcome;
use crate::telemetry::events::EventReason;

/// Requeues and Events due to conflicts.
pub(super) struct ConflictReport {
    pub(super) retry: Vec<Requeue>,
    pub(super) events: Vec<(EventReason, String)>,
}

/// Writes the conflicts, their count and the time of the last one.
pub(super) fn set_conflicts(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    outcome: &ActiveOutcome,
    now: Timestamp,
) -> ConflictReport {
    let (previous, base) = (
        &observed.previous.conflicts,
        observed.deadlines.conflict_backoff,
    );
    let contention = &outcome.contention;
    status.conflicts = drift_restore::update(previous, &contention.restored, base, now);
    if !status.conflicts.is_empty() {
        status.conflict_count = Some(history::total_conflicts(&status.conflicts));
        status.last_conflict_time = history::last_conflict_time(&status.conflicts);
    }
    let rechecks = [
        contention.recheck_after,
        drift_restore::recheck_after(&status.conflicts, now),
    ];
    let message = drift_restore::conflict_message(&status.conflicts, base)
        .filter(|_| !contention.restored.is_empty());
    ConflictReport {
        retry: rechecks.into_iter().flatten().map(Requeue::After).collect(),
        events: message
            .map(|text| (EventReason::FieldConflict, text))
            .into_iter()
            .collect(),
    }
}

/// Sets condition `Conflict`, which is present while the backoff delays reverting other managers' changes.
pub(super) fn set_condition(status: &mut AsyncActorStatus, observed: &Observed, now: Timestamp) {
    let mut conditions = Conditions::of(observed, now);
    conditions.list = std::mem::take(&mut status.conditions);
    match drift_restore::conflict_message(&status.conflicts, observed.deadlines.conflict_backoff) {
        Some(text) => conditions.set(CONFLICT, Some(true), Reason::FieldConflict, &text),
        None => conditions.remove(CONFLICT),
    }
    status.conditions = conditions.list;
}
