//! Types of the reports of both modes.

use asya_shared::api::{AsyncActorStatus, ConflictStatus, ObjectReference, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::conditions::ConditionReport;
use crate::fault::Requeue;
use crate::reconcile::model::observed::Observed;
use crate::record::Key;
use crate::telemetry::events::NewEvent;

/// The status of a reconcile, and when to requeue.
#[derive(Debug)]
pub struct Report {
    pub status: AsyncActorStatus,
    pub requeue: Requeue,
    /// Events to record once the status is written.
    pub events: Vec<NewEvent>,
}

/// The mode's share of the report of an active actor.
pub struct ModeReport {
    pub state: State,
    pub conditions: ConditionReport,
    /// When to requeue because of the mode's own steps.
    pub requeue: Requeue,
    /// When STATUS changes with time alone.
    pub recheck_at: Option<Timestamp>,
    pub events: Vec<NewEvent>,
}

/// The fields of the status about changes by other field managers.
pub struct ConflictFields {
    pub conflicts: Vec<ConflictStatus>,
    pub count: Option<i64>,
    pub last_time: Option<Time>,
}

impl ConflictFields {
    pub fn write_into(self, status: &mut AsyncActorStatus) {
        status.conflicts = self.conflicts;
        status.conflict_count = self.count;
        status.last_conflict_time = self.last_time;
    }
}

/// Reference to an object with the actor's name.
pub fn reference(observed: &Observed, version: &str, kind: &str) -> ObjectReference {
    let Key { namespace, name } = observed.key();
    ObjectReference {
        api_version: Some(version.to_owned()),
        kind: kind.to_owned(),
        name: name.to_string(),
        namespace: Some(namespace.to_string()),
    }
}
