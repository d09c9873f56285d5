//! Reports drift: changes by other field managers to the objects of a standalone actor, which are restored (WRK-8).
//! `binding/conflicts.rs` reports the contested fields of a binding.

use k8s_openapi::jiff::Timestamp;

use super::common::ConflictFields;
use super::conditions::ConditionChange;
use crate::condition::ConditionValue;
use crate::fault::{Reason, Requeue};
use crate::reconcile::contention::{drift_restore, history};
use crate::reconcile::model::condition_types::CONFLICT;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::StandaloneOutcome;
use crate::telemetry::events::{EventReason, NewEvent};

/// Drift of the actor's objects, as reported.
pub(super) struct DriftReport {
    pub(super) fields: ConflictFields,
    /// Condition `Conflict`, which is present while the backoff delays reverting other managers' changes.
    pub(super) condition: ConditionChange,
    pub(super) requeues: Vec<Requeue>,
    pub(super) events: Vec<NewEvent>,
}

/// Reports the conflicts, their count and the time of the last one.
pub(super) fn drift_report(
    observed: &Observed,
    outcome: &StandaloneOutcome,
    now: Timestamp,
) -> DriftReport {
    let previous = &observed.previous.conflicts;
    let base = observed.deadlines.conflict_backoff;
    let conflicts = drift_restore::record(previous, &outcome.restored, base, now);
    let rechecks = [
        outcome.drift_recheck_after,
        drift_restore::recheck_after(&conflicts, now),
    ];
    let message = drift_restore::conflict_message(&conflicts, base);
    let count = (!conflicts.is_empty()).then(|| history::total_conflicts(&conflicts));
    let new = message.clone().filter(|_| !outcome.restored.is_empty());
    let events = new.map(|text| NewEvent::new(EventReason::FieldConflict, text));
    DriftReport {
        fields: ConflictFields {
            count,
            last_time: history::last_conflict_time(&conflicts),
            conflicts,
        },
        condition: message.map_or(ConditionChange::Remove(CONFLICT), |text| {
            let value = ConditionValue::new(true, Reason::FieldConflict, text);
            ConditionChange::Set(CONFLICT, value)
        }),
        requeues: rechecks.into_iter().flatten().map(Requeue::After).collect(),
        events: events.into_iter().collect(),
    }
}
