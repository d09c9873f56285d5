//! What to do about what was observed. Every decision of a pass is here; nothing here acts.

pub mod deletion;
pub mod retired;

use std::sync::Arc;

use asya_shared::api::QueueStatus;
use asya_shared::names::FINALIZER;
use k8s_openapi::jiff::Timestamp;

use super::desired::Desired;
use super::observe::{Child, Observed, QueueSeen};
use super::{Fault, Reason, Retry};
use crate::queue::{Serving, Standing};
use crate::record::WorkloadRecord;

/// What to do in this pass.
#[derive(Debug)]
pub enum Plan {
    /// Write no child and no queue.
    Rest,
    /// Bring queue and workload to what is wanted.
    Ensure(Ensure),
    /// Take down what we made.
    Delete(deletion::Delete),
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
    /// Retired queues that go if they are empty.
    pub retired: Vec<QueueStatus>,
    /// A workload of the kind that is no longer wanted goes once the wanted one is there (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
}

/// About the queue.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueStep {
    /// It is as wanted; with what the broker said of it in this pass.
    Keep(Option<Serving>),
    /// It was as wanted, and the broker does not answer just now (QUE-10).
    Await,
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

/// Decides what to do.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    if observed.actor.metadata.deleting {
        return Plan::Delete(deletion::plan_deletion(observed, now));
    }
    if observed.actor.annotations.paused || is_done_once(observed) {
        return Plan::Rest;
    }
    Plan::Ensure(Ensure {
        add_finalizer: !has_finalizer(observed),
        queue: plan_queue(observed),
        workload: plan_workload(observed),
        retired: retired::looks(observed),
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

pub(super) fn has_finalizer(observed: &Observed) -> bool {
    observed
        .actor
        .finalizers
        .iter()
        .any(|finalizer| &**finalizer == FINALIZER)
}

fn plan_queue(observed: &Observed) -> QueueStep {
    let Ok(desired) = &observed.desired else {
        return QueueStep::Keep(None);
    };
    let queue = &desired.names.queue;
    let creates = desired.transport.queues().auto_create;
    match &observed.queue {
        QueueSeen::NotAsked => QueueStep::Unmanaged,
        QueueSeen::Unanswered => QueueStep::Await,
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
        QueueSeen::Standing(Standing::Serves(serving)) => QueueStep::Keep(Some(serving.clone())),
        QueueSeen::Verified | QueueSeen::Standing(Standing::Drifted) => QueueStep::Keep(None),
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

#[cfg(test)]
mod tests;
