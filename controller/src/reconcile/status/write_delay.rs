//! Delays status writes that the next one makes obsolete: counts of pods that are starting, and a new actor that waits
//! for a slow broker.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, State};
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Outcome, QueueState};

/// Time from the creation of a pod or actor, which has second precision, until its status is written. Most pods have
/// started by then, so that a new actor's status is written once at the start and once when it runs.
const START_TIME: Duration = Duration::from_secs(10);

/// How long to hold the status back; `None` if there is nothing to wait for.
pub(super) fn delay(
    observed: &Observed,
    outcome: &Outcome,
    status: &AsyncActorStatus,
    now: Timestamp,
) -> Option<Duration> {
    let created =
        of_new_actor(observed, outcome, status).or_else(|| of_new_pod(observed, status))?;
    let due = created.checked_add(START_TIME).ok()?;
    // By the API server's clock, which may be ahead.
    let wait = Duration::try_from(due.duration_since(now)).ok()?;
    Some(wait.min(START_TIME)).filter(|wait| !wait.is_zero())
}

/// When the actor was created, if no status reports it yet and it only waits for its turn at the broker (OPS-22).
fn of_new_actor(
    observed: &Observed,
    outcome: &Outcome,
    status: &AsyncActorStatus,
) -> Option<Timestamp> {
    let is_new = observed.previous == AsyncActorStatus::default();
    // Creating the queue waits for a slow broker, as querying it does.
    let waits = matches!(
        outcome,
        Outcome::Active(active) if matches!(active.common().queue, QueueState::Deferred(_))
    );
    let is_creating = status.status == Some(State::Creating);
    let created = observed.actor.created.as_ref()?.0;
    (is_new && waits && is_creating).then_some(created)
}

/// When the youngest pod was created, if nothing but the number of pods differs.
fn of_new_pod(observed: &Observed, status: &AsyncActorStatus) -> Option<Timestamp> {
    let with_new_counts = AsyncActorStatus {
        total_replicas: status.total_replicas,
        pending_replicas: status.pending_replicas,
        ready_replicas_summary: status.ready_replicas_summary.clone(),
        ..observed.previous.clone()
    };
    if observed.previous == *status || with_new_counts != *status {
        return None;
    }
    let created = observed.pods.iter().filter_map(|pod| pod.created.as_ref());
    created.map(|time| time.0).max()
}
