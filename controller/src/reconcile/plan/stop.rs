//! Stops the workload of an actor whose queue belongs to another actor (QUE-3): its pods would consume messages that
//! are not theirs. The workload stays, with all changes by others, for when the queue becomes the actor's.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::scaling::{Removal, plan_removal};
use crate::reconcile::model::known_queues::Hold;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// How pods are kept from another actor's messages.
#[derive(Debug, PartialEq)]
pub(super) struct Stop {
    /// KEDA has to release the workload first, or it would scale it up again.
    pub(super) scaling: Removal,
    /// Workloads that must have no pods.
    pub(super) workloads: Vec<Arc<WorkloadRecord>>,
}

/// `None` while no pod consumes another actor's messages.
pub(super) fn plan_stop(observed: &Observed, now: Timestamp) -> Option<Stop> {
    if !takes_anothers(observed) {
        return None;
    }
    let seen = &observed.scaling;
    let scaling = plan_removal(&seen.scaled_object, &seen.trigger_authentication, now);
    let wanted = observed.workload.ours().into_iter();
    let workloads = wanted
        .chain(&observed.former)
        .filter(|workload| scaling.released && has_pods(workload))
        .cloned()
        .collect();
    Some(Stop { scaling, workloads })
}

fn has_pods(workload: &WorkloadRecord) -> bool {
    workload.desired > 0 && !workload.metadata.deleting
}

/// Whether pods of the workload consume from a queue that another actor owns. A workload applied for an earlier queue
/// keeps consuming from that one: it is the actor's own.
fn takes_anothers(observed: &Observed) -> bool {
    let Some(contested) = &observed.contested else {
        return false;
    };
    let for_it = |workload: &Arc<WorkloadRecord>| {
        contested.workload.is_some()
            && workload.last.hash.as_deref() == contested.workload.as_deref()
    };
    match &observed.queues.verified {
        Some(verified) if matches!(verified.hold, Hold::Lost(_)) => true,
        Some(_) => contested.queue && observed.workload.ours().is_some_and(for_it),
        // Status names no queue of its own, as after a migration from the former operator.
        None => contested.queue,
    }
}

#[cfg(test)]
mod tests;
