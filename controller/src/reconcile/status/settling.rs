//! While pods start, their counts alone are not worth a write: the next write includes them.

use std::time::Duration;

use asya_shared::api::AsyncActorStatus;
use k8s_openapi::jiff::Timestamp;

use crate::reconcile::model::observed::Observed;

/// Time from a pod's creation, which has second precision, until the counts are written. Most pods have started by the
/// end of it, so that a new actor's status is written when it begins and when it runs.
const SETTLED: Duration = Duration::from_secs(10);

/// How long to hold the status back, because a pod was just created and nothing but the number of pods differs; `None`
/// if there is nothing to wait for.
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
