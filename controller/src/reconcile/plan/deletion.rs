//! Plans the deletion of an actor: its workloads, their pods, its queue, and last our finalizer.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, QueueStatus};
use asya_shared::names::FINALIZER;
use asya_shared::transport::QueueOf;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;

use super::finalizers::{FinalizerPatch, has_finalizer};
use super::scaling::{Removal, plan_removal};
use super::scaling_children::ScalingChildren;
use super::steps::{ScalingStep, Wake};
use super::unbind::{self, UNBOUND, Unbind, UnbindInputs};
use crate::reconcile::desired::drain::{Drain, Held};
use crate::reconcile::model::child::unseen;
use crate::reconcile::model::observed::Observed;
use crate::record::{ChildRecord, ScaledObjectRecord, TriggerAuthentication, WorkloadRecord};

/// How long pods may outlive their grace period before the queue is deleted anyway (FIN-2).
const PODS_MAY_OVERSTAY: Duration = Duration::from_secs(30);

/// The deletion of an actor: its steps, and what they need.
#[derive(Debug)]
pub struct Deletion {
    pub steps: Delete,
    pub unbind_inputs: UnbindInputs,
    pub scaling_children: ScalingChildren,
    /// Our `ScaledObject`, `TriggerAuthentication` and `ServiceAccount`, if they exist.
    pub scaled_object: Option<Arc<ScaledObjectRecord>>,
    pub trigger_authentication: Option<Arc<ChildRecord<TriggerAuthentication>>>,
    pub service_account: Option<Arc<ChildRecord<ServiceAccount>>>,
    /// The actor's queue as we would have created it; `None` if its spec is invalid.
    pub wanted_queue: Option<QueueOf>,
    pub queue_policy: QueueDeletionPolicy,
    /// Leave the objects and the queue (FW-23).
    pub orphans: bool,
    /// The shared `ConfigMap`s outlive every actor: something that stays mounts them.
    pub keeps_shared: bool,
    /// The pods of the actor's own workload, which are deleted with it, do not count among those that mount them.
    pub own_pods: bool,
    /// The namespace that is being deleted, and its queues that stay.
    pub abandons: Option<(Option<String>, Held)>,
    /// Removes our finalizer, as the last step.
    pub release: Option<FinalizerPatch>,
}

/// Plans the deletion with everything that its steps need.
pub fn plan(observed: &Observed, now: Timestamp) -> Deletion {
    let (seen, actor) = (&observed.scaling, &observed.actor);
    let steps = plan_deletion(observed, now);
    let removal = match &steps.scaling {
        ScalingRemoval::Delete(removal) => removal.clone(),
        ScalingRemoval::Orphan => Removal::default(),
    };
    let desired = observed.desired.as_deref().ok();
    Deletion {
        unbind_inputs: UnbindInputs::new(observed, &steps.unbind),
        steps,
        scaling_children: ScalingChildren::new(observed, Some(&ScalingStep::Unwanted(removal))),
        scaled_object: seen.scaled_object.ours().cloned(),
        trigger_authentication: seen.trigger_authentication.ours().cloned(),
        service_account: observed.service_account.ours().cloned(),
        wanted_queue: desired.map(|desired| desired.queue_of(actor)),
        queue_policy: observed.deletion.queue,
        orphans: observed.deletion.orphans,
        keeps_shared: observed.deletion.orphans || template_stays(observed),
        own_pods: actor.binds_to.is_none(),
        abandons: match &observed.drain {
            Some(Drain::Abandoned {
                namespace_uid,
                held,
            }) => Some((namespace_uid.clone(), held.clone())),
            _ => None,
        },
        release: FinalizerPatch::removing(actor, FINALIZER),
    }
}

/// Whether an actor being deleted leaves its part in the target's pod template: pods that mount the shared
/// `ConfigMap`s are still to be created.
fn template_stays(observed: &Observed) -> bool {
    let seen = observed.binding.as_ref();
    let unbinding = seen.and_then(|it| it.unbinding.as_ref());
    unbinding.is_some_and(|it| it.skip) && observed.previous.template.is_some()
}

/// The steps of a deletion, in execution order.
#[derive(Debug, PartialEq)]
pub struct Delete {
    pub scaling: ScalingRemoval,
    /// The sidecars in pods of other controllers.
    pub unbind: Unbind,
    /// A target that nothing scales any more, and nothing would wake (SO-6).
    pub wake: Option<Wake>,
    pub workloads: Vec<WorkloadRemoval>,
    pub service_account: AccountRemoval,
    /// How the deletion continues after these steps.
    pub then: Then,
}

/// How the actor lets go of a workload.
#[derive(Debug, PartialEq)]
pub enum WorkloadRemoval {
    Delete(Arc<WorkloadRecord>),
    /// Remove our owner reference and leave it.
    Orphan(Arc<WorkloadRecord>),
}

/// How the actor lets go of KEDA's objects.
#[derive(Debug, PartialEq)]
pub enum ScalingRemoval {
    Delete(Removal),
    /// Remove our owner references and leave them.
    Orphan,
}

/// How the actor lets go of its `ServiceAccount`.
#[derive(Debug, PartialEq, Eq)]
pub enum AccountRemoval {
    /// Not yet, or it does not exist.
    Keep,
    /// Delete it: no pod runs under it any more.
    Delete,
    /// Remove our owner reference and leave it.
    Orphan,
}

/// How a deletion continues.
#[derive(Debug, PartialEq)]
pub enum Then {
    /// Something is still being deleted: wait for its event, at most this long.
    Wait(Option<Duration>),
    /// Nothing uses the queues any more.
    Finish {
        /// Queues to delete now.
        queues: Vec<QueueRemoval>,
    },
    /// Our finalizer is removed; other finalizers are not our business.
    Gone,
}

/// A queue to delete, with its messages.
#[derive(Debug, PartialEq)]
pub struct QueueRemoval {
    pub queue: QueueStatus,
    /// Whether status names the queue. If not, it is ours only if it is what we would have created.
    pub recorded: bool,
}

impl Deletion {
    /// What to do with the shared `ConfigMap`s when this actor goes (RUN-2, SAFE-33).
    pub fn shared_config_maps(&self, others: bool, mounted: bool) -> SharedConfigMaps {
        if self.keeps_shared {
            SharedConfigMaps::Orphan
        } else if others || mounted {
            SharedConfigMaps::Keep
        } else {
            SharedConfigMaps::Delete
        }
    }
}

/// What to do with the shared `ConfigMap`s of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedConfigMaps {
    /// Still needed, or possibly so: check again later.
    Keep,
    /// Needed by something that outlives every actor (FW-23).
    Orphan,
    Delete,
}

/// Plans the next steps of the deletion (FIN-2).
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
    // Remove the autoscaler first, so that a terminating pod does not wake the target.
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
        // Wake the target only after unbinding, so that its pods start only once (SAFE-24).
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

/// Sidecars leave their pods before the queue is deleted (BIND-43).
fn plan_unbind(observed: &Observed, now: Timestamp) -> Unbind {
    let Some(binding) = &observed.binding else {
        return Unbind::Done;
    };
    let Some(seen) = &binding.unbinding else {
        return Unbind::Unknown;
    };
    let previous = &observed.previous;
    let rollout = previous.rollout.as_ref();
    // Objects in `rollAnnotations` are read even if the target does not resolve.
    let asked = rollout.filter(|it| it.value != UNBOUND && previous.roll_annotations.is_empty());
    let written = asked.is_some() || previous.claimed.is_some() || previous.template.is_some();
    let released = rollout.filter(|it| it.value == UNBOUND);
    let before = released.and_then(|it| it.pods);
    let last = released.and_then(|it| it.since.as_ref()).map(|it| it.0);
    let released = last.and_then(|it| now.duration_since(it).try_into().ok());
    let deleted = observed.actor.deleted.as_ref().map(|it| it.0);
    unbind::decide(&unbind::UnbindFacts {
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

/// After KEDA has released the workload: delete it, then wait for its pods, then delete the queue.
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

/// No queue is deleted if the user retains it or disabled queue management (FIN-4).
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
    // A pod's `deletionTimestamp` is the end of its grace period. A pod that is not terminating yet gets its grace
    // period from the actor's deletion, or from when this process became leader, if that was later.
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
