//! The target and its pods in the status.

use asya_shared::api::{AsyncActorStatus, ObjectReference, ResolvedTarget};

use super::pods::CountedPods;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::status::replicas::set_replicas;
use crate::reconcile::status::state::ReplicaCounts;

/// Writes the target, and the numbers of its pods.
pub(super) fn set_target(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    binding: &ObservedBinding,
    pods: Option<&CountedPods>,
) {
    status.resolved_target = resolved_target(observed, binding);
    let Some(pods) = pods else {
        keep_pods(status, &observed.previous);
        if observed.desired.is_err() {
            // Pods that start now get no sidecar, and are not counted.
            status.pods = None;
        }
        return;
    };
    status.pods = Some(pods.counts.pods.clone());
    let counts = ReplicaCounts {
        desired: pods.desired,
        total: pods.counts.total,
        ready: pods.counts.ready,
    };
    set_replicas(status, counts, &pods.health);
    if let Some(target) = &status.resolved_target {
        status.selector.clone_from(&target.pod_selector);
        status.workload_ref = Some(ObjectReference {
            api_version: Some(target.api_version.clone()),
            kind: target.kind.clone(),
            name: target.name.clone(),
            namespace: target.namespace.clone(),
        });
    }
}

/// Keeps the previous values: the pods have not been listed since this process started.
fn keep_pods(status: &mut AsyncActorStatus, previous: &AsyncActorStatus) {
    *status = AsyncActorStatus {
        pods: previous.pods.clone(),
        replicas: previous.replicas,
        ready_replicas: previous.ready_replicas,
        desired_replicas: previous.desired_replicas,
        total_replicas: previous.total_replicas,
        pending_replicas: previous.pending_replicas,
        failing_pods: previous.failing_pods,
        replicas_summary: previous.replicas_summary.clone(),
        ready_replicas_summary: previous.ready_replicas_summary.clone(),
        last_scale_time: previous.last_scale_time.clone(),
        last_scale_direction: previous.last_scale_direction.clone(),
        last_scale_formatted: previous.last_scale_formatted.clone(),
        selector: previous.selector.clone(),
        workload_ref: previous.workload_ref.clone(),
        ..std::mem::take(status)
    };
}

/// Dropped once the target is lost, because a new target with its name may have other labels (BIND-41).
fn resolved_target(observed: &Observed, binding: &ObservedBinding) -> Option<ResolvedTarget> {
    match binding {
        ObservedBinding::Resolved(resolved) => {
            let target = &resolved.target.target;
            Some(target.to_status(&observed.key().namespace))
        }
        ObservedBinding::Refused(_) => None,
        ObservedBinding::Unknown | ObservedBinding::Unbinding(_) => {
            observed.previous.resolved_target.clone()
        }
    }
}
