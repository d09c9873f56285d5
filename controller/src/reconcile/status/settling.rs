//! Numbers of pods alone are worth no write while pods start: the next one tells them, too.

use std::time::Duration;

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::observed::Observed;

/// From a pod's creation, which is told to the second, until its numbers are written. Most pods have
/// started by then, so that a new actor's status is written when it begins and when it runs.
const SETTLED: Duration = Duration::from_secs(10);

/// How long the status is left as it stands, because a pod has just been made and nothing but the number
/// of pods differs; `None` when there is nothing to wait for.
pub(super) fn wait(
    observed: &Observed,
    status: &AsyncActorStatus,
    now: Timestamp,
) -> Option<Duration> {
    let numbered = AsyncActorStatus {
        total_replicas: status.total_replicas,
        pending_replicas: status.pending_replicas,
        ready_replicas_summary: status.ready_replicas_summary.clone(),
        ..observed.previous.clone()
    };
    if observed.previous == *status || numbered != *status {
        return None;
    }
    let made = observed.pods.iter().filter_map(|pod| pod.created.as_ref());
    let settled = made.map(|time| time.0).max()?.checked_add(SETTLED).ok()?;
    Duration::try_from(settled.duration_since(now))
        .ok()
        .filter(|wait| !wait.is_zero())
}
