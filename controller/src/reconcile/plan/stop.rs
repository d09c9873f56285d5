//! Stops the workload of an actor whose queue belongs to another actor, because its pods would consume that actor's
//! messages (QUE-3). The workload is kept, with all changes by others, in case the queue becomes the actor's.

use std::sync::Arc;

use asya_shared::queue_claims::ClaimKind;
use k8s_openapi::jiff::Timestamp;

use super::scaling::{ScalingTeardown, plan_teardown};
use crate::reconcile::model::known_queues::DeletePermission;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// The scaling and workloads to stop, so that no pod consumes another actor's messages.
#[derive(Debug, PartialEq)]
pub(super) struct Stop {
    /// KEDA has to stop scaling the workload first, or it would scale it up again.
    pub(super) scaling: ScalingTeardown,
    /// Workloads to scale to zero.
    pub(super) workloads: Vec<Arc<WorkloadRecord>>,
}

/// Returns `None` while no pod consumes another actor's messages.
pub(super) fn plan_stop(observed: &Observed, now: Timestamp) -> Option<Stop> {
    if !consumes_others_messages(observed) {
        return None;
    }
    let keda = &observed.scaling;
    let scaling = plan_teardown(&keda.scaled_object, &keda.trigger_authentication, now);
    let desired = observed.workload.ours().into_iter();
    let workloads = desired
        .chain(&observed.previous_workload)
        .filter(|workload| scaling.completed && has_pods(workload))
        .cloned()
        .collect();
    Some(Stop { scaling, workloads })
}

fn has_pods(workload: &WorkloadRecord) -> bool {
    workload.desired > 0 && !workload.metadata.deleting
}

/// Whether pods of the workload consume from a queue that another actor owns. A workload that was applied for an
/// earlier queue of the actor still consumes from that one.
fn consumes_others_messages(observed: &Observed) -> bool {
    let Some(name_taken) = &observed.queue_name_taken else {
        return false;
    };
    let is_for_taken_queue = |workload: &Arc<WorkloadRecord>| {
        name_taken.workload_hash.is_some()
            && workload.last_applied.hash.as_deref() == name_taken.workload_hash.as_deref()
    };
    match &observed.queues.verified {
        Some(verified) if matches!(verified.permission, DeletePermission::HeldBy(_)) => true,
        Some(_) => {
            name_taken.contested == ClaimKind::Queue
                && observed.workload.ours().is_some_and(is_for_taken_queue)
        }
        // Status names no queue, as after a migration from the Go operator.
        None => name_taken.contested == ClaimKind::Queue,
    }
}

#[cfg(test)]
mod tests;
