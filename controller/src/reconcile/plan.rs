//! What to do about what was observed. Every decision of a pass is here; nothing here acts.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::names::FINALIZER;
use k8s_openapi::jiff::Timestamp;

use super::desired::Desired;
use super::observe::{Child, Observed, QueueSeen};
use super::{Fault, Reason, Retry};
use crate::queue::Standing;
use crate::record::WorkloadRecord;

/// After the grace period pods get this long before the queue is taken from under them (FIN-2).
const PODS_MAY_OVERSTAY: Duration = Duration::from_secs(30);

/// What to do in this pass.
#[derive(Debug)]
pub enum Plan {
    /// Write no child and no queue.
    Rest,
    /// Bring queue and workload to what is wanted.
    Ensure(Ensure),
    /// Take down what we made.
    Delete(Delete),
}

/// The parts of a pass over an actor that lives, in the order in which they are done.
#[derive(Debug)]
pub struct Ensure {
    /// Put our finalizer on the actor first (FIN-1).
    pub add_finalizer: bool,
    /// About the queue.
    pub queue: QueueStep,
    /// About the workload.
    pub workload: WorkloadStep,
    /// A workload of the kind that is no longer wanted goes once the wanted one is there (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
}

/// About the queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueStep {
    /// It is as wanted.
    Keep,
    /// It is somebody's business, not ours (QUE-12).
    Unmanaged,
    /// Create it.
    Create,
    /// Bring it to what is wanted, with its messages.
    Update,
    /// It cannot be had now.
    Refuse(Fault),
}

/// About the workload.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadStep {
    /// It is as wanted, or not to be touched.
    Keep,
    /// There is none: apply it, once the queue is there (QUE-4).
    Create,
    /// Apply it.
    Update {
        /// First make the former operator's fields ours: this is where they stand (WRK-7).
        take_over: Option<usize>,
        /// First give the number of replicas an owner of its own (WRK-3).
        hand_over: bool,
    },
    /// It cannot be had now.
    Refuse(Fault),
}

/// The parts of a pass over an actor that goes, in the order in which they are done.
#[derive(Debug, PartialEq)]
pub struct Delete {
    /// What happens to the workloads.
    pub workloads: Vec<WorkloadRemoval>,
    /// What stands between the actor and its end.
    pub then: Then,
}

/// What happens to the workload of an actor that goes.
#[derive(Debug, PartialEq)]
pub enum WorkloadRemoval {
    /// Delete it.
    Delete(Arc<WorkloadRecord>),
    /// Give up our ownerReference on it.
    Orphan(Arc<WorkloadRecord>),
}

/// The end of a deletion.
#[derive(Debug, PartialEq)]
pub enum Then {
    /// Workload or pods are still going; a watch wakes us, or the clock does.
    Wait(Option<Duration>),
    /// Nothing holds the queue any more.
    Finish {
        /// The queue to delete.
        queue: Option<QueueStatus>,
    },
    /// Our finalizer is gone; what others hold is not our business.
    Gone,
}

/// Decides what to do.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    if observed.actor.metadata.deleting {
        return Plan::Delete(plan_deletion(observed, now));
    }
    if observed.actor.annotations.paused || is_done_once(observed) {
        return Plan::Rest;
    }
    Plan::Ensure(Ensure {
        add_finalizer: !has_finalizer(observed),
        queue: plan_queue(observed),
        workload: plan_workload(observed),
        former: observed
            .former
            .clone()
            .filter(|former| observed.desired.is_ok() && !former.metadata.deleting),
    })
}

/// FW-21: what was applied for this spec is left alone, whatever became of it since.
fn is_done_once(observed: &Observed) -> bool {
    let Ok(desired) = &observed.desired else {
        return false;
    };
    let recorded = observed
        .recorded_workload(desired.kind)
        .and_then(|entry| entry.hash.as_deref());
    observed.actor.annotations.once
        && matches!(observed.queue, QueueSeen::Verified | QueueSeen::NotAsked)
        && recorded == Some(&desired.workload.hash)
}

fn has_finalizer(observed: &Observed) -> bool {
    observed
        .actor
        .finalizers
        .iter()
        .any(|finalizer| &**finalizer == FINALIZER)
}

fn plan_queue(observed: &Observed) -> QueueStep {
    let Ok(desired) = &observed.desired else {
        return QueueStep::Keep;
    };
    let queue = &desired.names.queue;
    let creates = desired.transport.queues().auto_create;
    match &observed.queue {
        QueueSeen::NotAsked => QueueStep::Unmanaged,
        QueueSeen::Unknown(error) => QueueStep::Refuse(error.fault()),
        QueueSeen::Standing(Standing::Absent) if creates => QueueStep::Create,
        QueueSeen::Standing(Standing::Absent) => QueueStep::Refuse(Fault {
            reason: Reason::QueueMissing,
            message: format!(
                "queue {queue} does not exist and autoCreate is false; create it at the broker"
            ),
            retry: Retry::Slowly,
        }),
        QueueSeen::Standing(Standing::Drifted) if creates => QueueStep::Update,
        QueueSeen::Verified | QueueSeen::Standing(Standing::Serves(_) | Standing::Drifted) => {
            QueueStep::Keep
        }
        QueueSeen::Standing(Standing::Differs { wanted, found }) => QueueStep::Refuse(Fault {
            reason: Reason::QueueMismatch,
            message: format!(
                "queue {queue} has {found}, wanted is {wanted}; a queue cannot be changed without losing its messages: \
                 delete it when it is empty, or change the transport's configuration"
            ),
            retry: Retry::Slowly,
        }),
    }
}

fn plan_workload(observed: &Observed) -> WorkloadStep {
    let Ok(desired) = &observed.desired else {
        return WorkloadStep::Keep;
    };
    match &observed.workload {
        Child::Absent => WorkloadStep::Create,
        Child::Foreign(workload) => WorkloadStep::Refuse(not_owned(workload)),
        // Its end is an event, and then it is made anew.
        Child::Ours(workload) if workload.metadata.deleting => WorkloadStep::Keep,
        Child::Ours(workload) if is_unchanged(observed, workload, desired) => WorkloadStep::Keep,
        Child::Ours(workload) => update(workload, desired),
    }
}

fn update(workload: &WorkloadRecord, desired: &Desired) -> WorkloadStep {
    let take_over = workload
        .former_owner
        .filter(|_| workload.fingerprint.is_none());
    let owned = workload.owns_replicas || take_over.is_some();
    WorkloadStep::Update {
        take_over,
        hand_over: owned && desired.spec.scaling_in_force().is_some(),
    }
}

/// Same object, sent with the same content, and nobody took a field of ours since.
fn is_unchanged(observed: &Observed, workload: &WorkloadRecord, desired: &Desired) -> bool {
    let Some(recorded) = observed.recorded_workload(workload.kind) else {
        return false;
    };
    let fingerprint = workload
        .fingerprint
        .map(|fingerprint| fingerprint.to_string());
    workload.applied_hash.as_deref() == Some(&desired.workload.hash)
        && recorded.hash.as_deref() == Some(&desired.workload.hash)
        && recorded.uid.as_deref() == Some(&*workload.metadata.uid)
        && fingerprint.is_some()
        && recorded.fingerprint == fingerprint
}

fn not_owned(workload: &WorkloadRecord) -> Fault {
    let (kind, key) = (workload.kind, &workload.metadata.key);
    let owner = match &workload.metadata.controller {
        Some(owner) => format!("belongs to {} {}", owner.kind, owner.name),
        None => "was not made by this operator".to_owned(),
    };
    Fault {
        reason: Reason::NotOwned,
        message: format!(
            "{kind:?} {key} exists and {owner}; delete it or rename this actor (adoptionPolicy: IfUnowned takes over \
             one without an owner)"
        ),
        retry: Retry::Slowly,
    }
}

fn plan_deletion(observed: &Observed, now: Timestamp) -> Delete {
    if !has_finalizer(observed) {
        return Delete {
            workloads: Vec::new(),
            then: Then::Gone,
        };
    }
    let ours = our_workloads(observed);
    if observed.deletion.orphans {
        let workloads = ours.into_iter().map(WorkloadRemoval::Orphan).collect();
        return Delete {
            workloads,
            then: Then::Finish { queue: None },
        };
    }
    if !ours.is_empty() {
        let still = ours
            .into_iter()
            .filter(|workload| !workload.metadata.deleting);
        let workloads = still.map(WorkloadRemoval::Delete).collect();
        return Delete {
            workloads,
            then: Then::Wait(None),
        };
    }
    let queue = queue_to_delete(observed);
    let wait = queue.as_ref().and_then(|_| wait_for_pods(observed, now));
    let then = wait.map_or(Then::Finish { queue }, |wait| Then::Wait(Some(wait)));
    Delete {
        workloads: Vec::new(),
        then,
    }
}

fn our_workloads(observed: &Observed) -> Vec<Arc<WorkloadRecord>> {
    let wanted = match &observed.workload {
        Child::Ours(workload) => Some(workload),
        Child::Absent | Child::Foreign(_) => None,
    };
    wanted
        .into_iter()
        .chain(&observed.former)
        .cloned()
        .collect()
}

/// FIN-4: what is not ours to delete, or is to stay, is `None`.
fn queue_to_delete(observed: &Observed) -> Option<QueueStatus> {
    if !observed.queues_managed
        || observed.deletion.retains_queue
        || observed.actor.annotations.skip_queue_deletion
    {
        return None;
    }
    let wanted = observed.desired.as_ref();
    if wanted.is_err_and(|fault| fault.reason == Reason::QueueConflict) {
        return None;
    }
    let wanted = wanted.ok();
    if wanted.is_some_and(|desired| !desired.transport.queues().auto_create) {
        return None;
    }
    observed.previous.queue.clone().or_else(|| {
        let desired = wanted?;
        Some(QueueStatus {
            transport: desired.transport.name.clone(),
            name: desired.names.queue.clone(),
            ..QueueStatus::default()
        })
    })
}

fn wait_for_pods(observed: &Observed, now: Timestamp) -> Option<Duration> {
    if observed.pods.iter().all(|pod| pod.finished) {
        return None;
    }
    let grace = Duration::from_secs(observed.deletion.grace_seconds.into());
    let began = observed.actor.deleted.as_ref()?.0;
    let ends = began.checked_add(grace + PODS_MAY_OVERSTAY).ok()?;
    Duration::try_from(ends.duration_since(now))
        .ok()
        .filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests;
