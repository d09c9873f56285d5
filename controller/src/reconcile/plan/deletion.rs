//! What to do about an actor that goes: its workloads, their pods, its queue, last our finalizer.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::QueueStatus;
use k8s_openapi::jiff::Timestamp;

use super::finalizers::has_finalizer;
use super::scaling::{Removal, plan_removal};
use super::steps::Wake;
use super::unbind::{self, UNBOUND, Unbind};
use crate::reconcile::model::child::unseen;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// After the grace period pods get this long before the queue is taken from under them (FIN-2).
const PODS_MAY_OVERSTAY: Duration = Duration::from_secs(30);

/// The parts of a pass over an actor that goes, in the order in which they are done.
#[derive(Debug, PartialEq)]
pub struct Delete {
    /// What happens to what scales the workload.
    pub scaling: ScalingRemoval,
    /// What happens to the sidecars in pods of others.
    pub unbind: Unbind,
    /// What nobody scales any more, and nobody would wake (SO-6).
    pub wake: Option<Wake>,
    /// What happens to the workloads.
    pub workloads: Vec<WorkloadRemoval>,
    /// What happens to the `ServiceAccount`.
    pub service_account: AccountRemoval,
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

/// What happens to KEDA's objects of an actor that goes.
#[derive(Debug, PartialEq)]
pub enum ScalingRemoval {
    /// Take them down.
    Delete(Removal),
    /// Give up our ownerReference on them.
    Orphan,
}

/// What happens to the `ServiceAccount` of an actor that goes.
#[derive(Debug, PartialEq, Eq)]
pub enum AccountRemoval {
    /// Nothing yet, or it is gone.
    Keep,
    /// Delete it: no pod runs as it any more.
    Delete,
    /// Give up our ownerReference on it.
    Orphan,
}

/// The end of a deletion.
#[derive(Debug, PartialEq)]
pub enum Then {
    /// Workload or pods are still going; a watch wakes us, or the clock does.
    Wait(Option<Duration>),
    /// Nothing holds the queues any more.
    Finish {
        /// The queues to delete.
        queues: Vec<QueueRemoval>,
    },
    /// Our finalizer is gone; what others hold is not our business.
    Gone,
}

/// A queue to delete, with its messages.
#[derive(Debug, PartialEq)]
pub struct QueueRemoval {
    /// The queue.
    pub queue: QueueStatus,
    /// Whether status names it. One that it does not name is ours only if it is what we would have made.
    pub recorded: bool,
}

/// Decides what to do in this pass of the deletion (FIN-2).
pub fn plan_deletion(observed: &Observed, now: Timestamp) -> Delete {
    let seen = &observed.scaling;
    let removal = plan_removal(&seen.scaled_object, &seen.trigger_authentication, now);
    let ours = our_workloads(observed);
    if !has_finalizer(observed) {
        return Delete {
            scaling: ScalingRemoval::Delete(Removal::default()),
            unbind: Unbind::Done,
            wake: None,
            workloads: Vec::new(),
            service_account: AccountRemoval::Keep,
            then: Then::Gone,
        };
    }
    if observed.deletion.orphans {
        return Delete {
            scaling: ScalingRemoval::Orphan,
            unbind: Unbind::Done,
            wake: None,
            workloads: ours.into_iter().map(WorkloadRemoval::Orphan).collect(),
            service_account: AccountRemoval::Orphan,
            then: Then::Finish { queues: Vec::new() },
        };
    }
    let ends = removal.until.map(|ends| ends.duration_since(now));
    // What scales the target first: a pod that goes must not wake it.
    let unbind = if removal.released {
        plan_unbind(observed, now)
    } else {
        Unbind::Done
    };
    let (workloads, then) = match ends.and_then(|wait| wait.try_into().ok()) {
        wait if !removal.released => (Vec::new(), Then::Wait(wait)),
        _ if unbind != Unbind::Done => (Vec::new(), Then::Wait(None)),
        _ => without_scaling(observed, ours, now),
    };
    let finishes = matches!(then, Then::Finish { .. });
    Delete {
        // First what makes pods roll, then pods: they start once (SAFE-24).
        wake: plan_wake(observed).filter(|_| removal.released && unbind == Unbind::Done),
        scaling: ScalingRemoval::Delete(removal),
        unbind,
        workloads,
        service_account: if finishes {
            AccountRemoval::Delete
        } else {
            AccountRemoval::Keep
        },
        then,
    }
}

fn plan_wake(observed: &Observed) -> Option<Wake> {
    let unbinding = observed.binding.as_ref()?.unbinding.as_ref()?;
    super::wake::wake(observed, unbinding.scaled.as_ref()?)
}

/// The queue is taken from under no sidecar (BIND-43).
fn plan_unbind(observed: &Observed, now: Timestamp) -> Unbind {
    let Some(binding) = &observed.binding else {
        return Unbind::Done;
    };
    let Some(seen) = &binding.unbinding else {
        return Unbind::Unknown;
    };
    let previous = &observed.previous;
    let rollout = previous.rollout.as_ref();
    // Where the annotation stands is known, and that is looked at whether the target is understood or not.
    let asked = rollout.filter(|it| it.value != UNBOUND && previous.roll_annotations.is_empty());
    let written = asked.is_some() || previous.claimed.is_some() || previous.template.is_some();
    let released = rollout.filter(|it| it.value == UNBOUND);
    let before = released.and_then(|it| it.pods);
    let last = released.and_then(|it| it.since.as_ref()).map(|it| it.0);
    let released = last.and_then(|it| now.duration_since(it).try_into().ok());
    let deleted = observed.actor.deleted.as_ref().map(|it| it.0);
    unbind::decide(&unbind::Facts {
        skip: seen.skip,
        pods: &seen.pods,
        going: seen.going,
        asleep: seen.asleep && plan_wake(observed).is_some(),
        availability: &seen.availability,
        before,
        since: last.or(deleted),
        limit: observed.progress_limit(),
        now,
        roll: seen.roll.as_ref(),
        live: &seen.live,
        unresolved: seen.unresolved.as_deref().map(|why| (why, written)),
        released,
    })
}

/// KEDA has let go: the workload goes, then its pods, then the queue.
fn without_scaling(
    observed: &Observed,
    ours: Vec<Arc<WorkloadRecord>>,
    now: Timestamp,
) -> (Vec<WorkloadRemoval>, Then) {
    if !ours.is_empty() {
        let look = ours.iter().filter_map(|workload| unseen(workload)).min();
        let still = ours
            .into_iter()
            .filter(|workload| !workload.metadata.deleting);
        let workloads = still.map(WorkloadRemoval::Delete).collect();
        return (workloads, Then::Wait(look));
    }
    let queues = queues_to_delete(observed);
    let wait = wait_for_pods(observed, now).filter(|_| !queues.is_empty());
    let then = wait.map_or(Then::Finish { queues }, |wait| Then::Wait(Some(wait)));
    (Vec::new(), then)
}

fn our_workloads(observed: &Observed) -> Vec<Arc<WorkloadRecord>> {
    let wanted = observed.workload.ours();
    wanted
        .into_iter()
        .chain(&observed.former)
        .cloned()
        .collect()
}

/// FIN-4
fn queues_to_delete(observed: &Observed) -> Vec<QueueRemoval> {
    if !observed.queues_managed
        || observed.deletion.retains_queue
        || observed.actor.annotations.skip_queue_deletion
    {
        return Vec::new();
    }
    let all = observed.queues.to_delete();
    all.map(|(queue, recorded)| QueueRemoval {
        queue: queue.clone(),
        recorded,
    })
    .collect()
}

fn wait_for_pods(observed: &Observed, now: Timestamp) -> Option<Duration> {
    let grace = Duration::from_secs(observed.deletion.grace_seconds.into());
    // A pod's deletion is dated to the end of its grace. One that has not been told to stop gets it from when
    // there was somebody to take the workload from under it.
    let began = observed
        .actor
        .deleted
        .as_ref()?
        .0
        .max(observed.leading_since);
    let untold = began.checked_add(grace).ok()?;
    let pods = observed.pods.iter().filter(|pod| !pod.finished);
    let stops = pods.map(|pod| pod.deleted.as_ref().map_or(untold, |by| by.0));
    let ends = stops.max()?.checked_add(PODS_MAY_OVERSTAY).ok()?;
    Duration::try_from(ends.duration_since(now))
        .ok()
        .filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests;
