//! The numbers of pods in the status.

use asya_shared::api::AsyncActorStatus;

use crate::pods::summary::PodSummary;
use crate::reconcile::status::state::ReplicaCounts;

/// Writes the numbers. Unlike a Deployment's, `replicas` counts ready pods: column Running shows it (STA-10). `/scale`
/// reads `totalReplicas`.
pub(super) fn set_replicas(
    status: &mut AsyncActorStatus,
    counts: ReplicaCounts,
    pods: &PodSummary,
) {
    let ReplicaCounts {
        desired,
        total,
        ready,
    } = counts;
    status.replicas = Some(ready);
    status.ready_replicas = Some(ready);
    status.desired_replicas = Some(desired);
    status.total_replicas = Some(total);
    status.pending_replicas = Some(pods.pending);
    status.failing_pods = Some(pods.failing);
    status.replicas_summary = Some(format!("{ready}/{desired}"));
    status.ready_replicas_summary = Some(format!("{ready}/{total}"));
}
