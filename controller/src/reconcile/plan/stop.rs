//! The workload of an actor whose queue is another's (QUE-3): its pods would take messages that are not
//! theirs, so it gets none. It stays, with all that others have done to it, for when the queue is the actor's.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::scaling::{Removal, plan_removal};
use crate::reconcile::model::known_queues::Hold;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// What keeps pods from another's messages.
#[derive(Debug, PartialEq)]
pub(super) struct Stop {
    /// KEDA, which would bring pods, lets go of the workload first.
    pub(super) scaling: Removal,
    /// Workloads that are to have no pods.
    pub(super) workloads: Vec<Arc<WorkloadRecord>>,
}

/// `None` while no pod takes what is another's.
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

/// Whether pods of the workload receive from a queue that another actor owns. One that was applied for an
/// earlier queue goes on with that: it is the actor's own.
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
        // None of its own is known, as after the former operator.
        None => contested.queue,
    }
}

#[cfg(test)]
mod tests;
