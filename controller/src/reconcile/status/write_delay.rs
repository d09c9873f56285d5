//! While pods start, their counts alone are not worth a write: the next write includes them.

use std::time::Duration;

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::observed::Observed;

/// Time from a pod's creation, which has second precision, until the counts are written. Most pods have started by
/// then, so that a new actor's status is written once at the start and once when it runs.
const POD_START_TIME: Duration = Duration::from_secs(10);

/// How long to hold the status back, because a pod was just created and nothing but the number of pods differs; `None`
/// if there is nothing to wait for.
pub(super) fn delay(
    observed: &Observed,
    status: &AsyncActorStatus,
    now: Timestamp,
) -> Option<Duration> {
    let with_new_counts = AsyncActorStatus {
        total_replicas: status.total_replicas,
        pending_replicas: status.pending_replicas,
        ready_replicas_summary: status.ready_replicas_summary.clone(),
        ..observed.previous.clone()
    };
    if observed.previous == *status || with_new_counts != *status {
        return None;
    }
    let created_at = observed.pods.iter().filter_map(|pod| pod.created.as_ref());
    let counts_due = created_at
        .map(|time| time.0)
        .max()?
        .checked_add(POD_START_TIME)
        .ok()?;
    Duration::try_from(counts_due.duration_since(now))
        .ok()
        .filter(|wait| !wait.is_zero())
}
