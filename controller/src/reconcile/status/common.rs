//! Parts of the status that both modes share.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, ObjectReference, State};

use crate::broker::depths::ReportedDepth;
use crate::fault::Requeue;
use crate::reconcile::model::condition_types::{READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ActiveOutcome, QueueState};
use crate::record::Key;
use crate::telemetry::events::EventReason;

/// The status of a reconcile, and when to requeue.
#[derive(Debug)]
pub struct Report {
    pub status: AsyncActorStatus,
    /// When to requeue.
    pub retry: Requeue,
    /// Events to record once the status is written.
    pub events: Vec<(EventReason, String)>,
}

/// The generation with which the actor was ready. A field of its own, because conditions must not drive decisions
/// (FW-30). While pods of an older template run, the actor is not ready with this spec; an actor being deleted keeps
/// the generation recorded before (FW-21).
pub fn ready_generation(observed: &Observed, status: &AsyncActorStatus) -> Option<i64> {
    let annotations = &observed.actor.annotations;
    let generation = observed.actor.generation;
    let known = observed.previous.ready_generation;
    let deleting = observed.actor.metadata.deleting;
    let known = known.filter(|known| *known == generation || deleting);
    let mut conditions = status.conditions.iter();
    let is_ready = conditions.any(|it| it.type_ == READY && it.status == "True")
        && status.status != Some(State::Updating)
        && !annotations.paused;
    let reached = is_ready.then_some(generation);
    known.or(reached).filter(|_| annotations.once)
}

/// How long a pod may run without being ready; `None` means no limit.
pub fn unready_limit(observed: &Observed) -> Option<Duration> {
    let default = observed.deadlines.unready;
    let desired = observed.desired.as_ref();
    desired.map_or(default, |desired| desired.spec.readiness_limit(default))
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

/// Approximate message counts (QUE-20).
pub fn messages(observed: &Observed, outcome: &ActiveOutcome) -> (Option<i64>, Option<i64>) {
    let previous = &observed.previous;
    match (observed.depth, &outcome.queue) {
        (ReportedDepth::Depth(depth), _) => (to_count(depth.queued), to_count(depth.processing)),
        (ReportedDepth::Unknown, _) => (None, None),
        // A new queue is empty.
        (ReportedDepth::Unchanged, QueueState::Created(_)) => (Some(0), Some(0)),
        (ReportedDepth::Unchanged, _) => (previous.queued_messages, previous.processing_messages),
    }
}

pub fn to_count(messages: u64) -> Option<i64> {
    i64::try_from(messages).ok()
}

/// Derives `readySummary` and `transportStatus` from the conditions (STA-10).
pub fn summarize_conditions(status: &mut AsyncActorStatus, expected: &[&str]) {
    let find = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
    let is_true = |kind: &str| find(kind).is_some_and(|c| c.status == "True");
    let ready = expected.iter().filter(|kind| is_true(kind)).count();
    let summary = format!("{ready}/{}", expected.len());
    let transport = is_true(TRANSPORT_READY);
    status.ready_summary = Some(summary);
    status.transport_status = Some(if transport { "Ready" } else { "NotReady" }.to_owned());
}
