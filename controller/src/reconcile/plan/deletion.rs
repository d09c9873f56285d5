//! Plans the deletion of an actor: its workloads, their pods, its queue, and finally our finalizer.

mod adoption;

use std::sync::Arc;
use std::time::Duration;

use adoption::plan_adoption;
use asya_shared::api::{QueueDeletionPolicy, QueueStatus, WorkloadKind};
use asya_shared::names::FINALIZER;
use asya_shared::transport::ActorQueue;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::finalizers::FinalizerPatch;
use super::scaling::{ScalingTeardown, plan_teardown};
use super::steps::ScaleFromZero;
use super::unbind::{self, UnbindParams, UnbindStep, UnresolvedTarget};
use crate::reconcile::model::child::unwatched_poll_interval;
use crate::reconcile::model::drain::{DrainState, KeptQueues};
use crate::reconcile::model::known_queues::QueueEvidence;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::{UNBIND_MARKER, Unresolved};
use crate::record::{
    ActorRecord, ChildRecord, PodRecord, ScaledObjectRecord, TriggerAuthentication, WorkloadRecord,
};

/// How long pods may outlive their grace period before the queue is deleted anyway (FIN-2).
const GRACE_PERIOD_MARGIN: Duration = Duration::from_secs(30);

/// The deletion of an actor: its steps and their parameters.
#[derive(Debug)]
pub struct Deletion {
    pub steps: DeletionSteps,
    pub unbind_params: UnbindParams,
    /// Our `ScaledObject`, `TriggerAuthentication` and `ServiceAccount`, if they exist.
    pub scaled_object: Option<Arc<ScaledObjectRecord>>,
    pub trigger_authentication: Option<Arc<ChildRecord<TriggerAuthentication>>>,
    pub service_account: Option<Arc<ChildRecord<ServiceAccount>>>,
    /// The actor's queue as we would have created it; `None` if its spec is invalid.
    pub desired_queue: Option<ActorQueue>,
    pub queue_policy: QueueDeletionPolicy,
    pub queue_messages: QueueMessages,
    /// The actor's pods, which no longer consume from the queue: the last step is taken only if there are no others.
    /// `None` if the last step does not depend on pods.
    pub known_pods: Option<Vec<Arc<PodRecord>>>,
    /// Pods that an earlier actor of this name left, and that may consume from the queue.
    pub predecessor_pods: Vec<Arc<PodRecord>>,
    /// Pods without a controller that may consume from the queue as well.
    pub unmanaged_pods: Vec<Arc<PodRecord>>,
    /// Keep the objects and the queue (FW-23).
    pub orphans: bool,
    /// Keep the shared `ConfigMap`s beyond the last actor, because something that remains mounts them.
    pub keeps_shared: bool,
    /// Ignore pods with the actor's name among those that mount the `ConfigMap`s: all are of its own workload, and are
    /// deleted with it.
    pub ignores_workload_pods: bool,
    /// The queues that stay at the broker, because their namespace is being deleted.
    pub kept_queues: Option<KeptQueues>,
    /// Removes our finalizer as the last step.
    pub finalizer_removal: Option<FinalizerPatch>,
}

/// Plans the deletion with the parameters of its steps.
pub fn plan_deletion(observed: &Observed, now: Timestamp) -> Deletion {
    let keda = &observed.scaling;
    let actor = &observed.actor;
    let steps = plan_deletion_steps(observed, now);
    let desired = observed.desired.as_deref().ok();
    let deletes_queue =
        matches!(&steps.next, NextPhase::FinalStep { queues } if !queues.is_empty());
    let known_pods = (deletes_queue || removes_sidecars(observed)).then_some(&observed.known_pods);
    Deletion {
        unbind_params: UnbindParams::new(observed, &steps.unbind, now),
        steps,
        scaled_object: keda.scaled_object.ours().cloned(),
        trigger_authentication: keda.trigger_authentication.ours().cloned(),
        service_account: observed.service_account.ours().cloned(),
        desired_queue: desired.map(|desired| desired.queue_of(actor)),
        queue_policy: actor.queue_policy,
        queue_messages: if actor.queue_policy.waits_until_empty() {
            QueueMessages::Keep
        } else {
            QueueMessages::Delete
        },
        known_pods: known_pods.cloned(),
        predecessor_pods: observed.predecessor_pods.clone(),
        unmanaged_pods: observed.unmanaged_pods.clone(),
        orphans: observed.deletion.orphans,
        keeps_shared: observed.deletion.orphans || keeps_template_fields(observed),
        ignores_workload_pods: actor.binds_to.is_none()
            && observed.unmanaged_pods.is_empty()
            && observed.predecessor_pods.is_empty(),
        kept_queues: match &observed.drain {
            Some(DrainState::KeepQueues(queues)) => Some(queues.clone()),
            _ => None,
        },
        finalizer_removal: FinalizerPatch::removing(actor, FINALIZER),
    }
}

/// Whether the actor has to stay until no pod has its sidecar (BIND-43).
fn removes_sidecars(observed: &Observed) -> bool {
    observed.unbinding().is_some_and(|it| !it.skip)
}

/// Whether an actor being deleted leaves its fields in the target's pod template, so that future pods mount the shared
/// `ConfigMap`s.
fn keeps_template_fields(observed: &Observed) -> bool {
    observed.unbinding().is_some_and(|it| it.skip) && observed.previous.template.is_some()
}

/// The steps of a deletion, in execution order.
#[derive(Debug, PartialEq)]
pub struct DeletionSteps {
    pub scaling: ScalingRemoval,
    /// The sidecars in pods of other controllers.
    pub unbind: UnbindStep,
    /// Scales up a target at zero replicas that no autoscaler would scale any more (SO-6).
    pub scale_from_zero: Option<ScaleFromZero>,
    pub workloads: Vec<WorkloadRemoval>,
    pub service_account: ServiceAccountRemoval,
    /// The phase after these steps.
    pub next: NextPhase,
}

/// How a workload is removed, with its pods.
#[derive(Debug, PartialEq)]
pub enum WorkloadRemoval {
    /// Create this object, which has no pods of its own, so that it adopts those that an earlier one left. It is
    /// deleted with them.
    Adopt(WorkloadKind, Value),
    Delete(Arc<WorkloadRecord>),
    /// Remove our owner reference and keep it.
    Orphan(Arc<WorkloadRecord>),
}

/// How KEDA's objects are removed.
#[derive(Debug, PartialEq)]
pub enum ScalingRemoval {
    Delete(ScalingTeardown),
    /// Remove our owner references and keep them.
    Orphan,
}

/// How the `ServiceAccount` is removed.
#[derive(Debug, PartialEq, Eq)]
pub enum ServiceAccountRemoval {
    /// Not yet, or it does not exist.
    Keep,
    /// Delete it: no pod uses it any more.
    Delete,
    /// Remove our owner reference and keep it.
    Orphan,
}

#[derive(Debug, PartialEq)]
pub enum NextPhase {
    /// Something is still being deleted: wait for its watch event, at most this long.
    Wait(Option<Duration>),
    /// Nothing uses the queues any more: delete these, then remove our finalizer.
    FinalStep {
        /// Queues to delete now.
        queues: Vec<QueueRemoval>,
    },
    /// Our finalizer is removed; others are left to their controllers.
    Finalized,
}

/// What happens to the messages of the queues to delete (QUE-44).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMessages {
    /// A queue is deleted only if it is empty.
    Keep,
    /// They are deleted with their queue, and reported.
    Delete,
}

/// A queue to delete.
#[derive(Debug, PartialEq)]
pub struct QueueRemoval {
    pub queue: QueueStatus,
    pub evidence: QueueEvidence,
}

impl Deletion {
    /// Pods that no workload of the actor controls, and that may consume from its queue.
    pub fn left_pods(&self) -> Vec<Arc<PodRecord>> {
        let left = self.predecessor_pods.iter().chain(&self.unmanaged_pods);
        left.cloned().collect()
    }

    /// Why a queue is kept, and what to do about `pod`, one of the left pods.
    pub fn kept_queue_text(&self, actor: &ActorRecord, queue: &QueueStatus, pod: &str) -> String {
        let is_unmanaged = |it: &Arc<PodRecord>| *it.metadata.key.name == *pod;
        let (origin, remedy) = if self.unmanaged_pods.iter().any(is_unmanaged) {
            ("which no workload controls", "delete that pod")
        } else if actor.binds_to.is_some() {
            let remedy = "restart that pod, which removes the sidecar";
            ("which an earlier actor of this name left", remedy)
        } else {
            let remedy = "delete that pod's workload";
            ("which an earlier actor of this name left", remedy)
        };
        format!(
            "queue {} on transport {} is kept: pod {pod}, {origin}, receives from it; {remedy}, then delete the queue \
             at the broker",
            queue.name, queue.transport
        )
    }

    /// Decides about the shared `ConfigMap`s when this actor is deleted (RUN-2, SAFE-33).
    pub fn shared_config_maps(&self, others: bool, mounted: bool) -> SharedConfigMapAction {
        if self.keeps_shared {
            SharedConfigMapAction::Orphan
        } else if others || mounted {
            SharedConfigMapAction::Keep
        } else {
            SharedConfigMapAction::Delete
        }
    }
}

/// The action on the shared `ConfigMap`s of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedConfigMapAction {
    /// Still needed, or possibly so: check again later.
    Keep,
    /// Needed by something that outlives every actor (FW-23).
    Orphan,
    Delete,
}

/// Plans the next steps of the deletion (FIN-2).
pub fn plan_deletion_steps(observed: &Observed, now: Timestamp) -> DeletionSteps {
    let keda = &observed.scaling;
    let workloads = our_workloads(observed);
    let teardown = plan_teardown(&keda.scaled_object, &keda.trigger_authentication, now);
    if !observed.actor.has_finalizer(FINALIZER) {
        return DeletionSteps {
            scaling: ScalingRemoval::Delete(ScalingTeardown::default()),
            unbind: UnbindStep::Done,
            scale_from_zero: None,
            workloads: Vec::new(),
            service_account: ServiceAccountRemoval::Keep,
            next: NextPhase::Finalized,
        };
    }
    if observed.deletion.orphans {
        return DeletionSteps {
            scaling: ScalingRemoval::Orphan,
            unbind: UnbindStep::Done,
            scale_from_zero: None,
            workloads: workloads.into_iter().map(WorkloadRemoval::Orphan).collect(),
            service_account: ServiceAccountRemoval::Orphan,
            next: NextPhase::FinalStep { queues: Vec::new() },
        };
    }
    let time_left = teardown
        .deadline
        .map(|deadline| deadline.duration_since(now));
    let scale_up = scale_up_after_unbinding(observed);
    // Remove the autoscaler first, so that messages of a terminating pod do not scale the target up.
    let unbind = if teardown.completed {
        plan_unbind(observed, scale_up.is_some(), now)
    } else {
        UnbindStep::Done
    };
    let (workloads, next) = match time_left.and_then(|wait| wait.try_into().ok()) {
        wait if !teardown.completed => (Vec::new(), NextPhase::Wait(wait)),
        _ if unbind != UnbindStep::Done => (Vec::new(), NextPhase::Wait(None)),
        _ => after_unbinding(observed, workloads, now),
    };
    let is_final = matches!(next, NextPhase::FinalStep { .. });
    DeletionSteps {
        // Scale the target up only after unbinding, so that its pods start only once (SAFE-24).
        scale_from_zero: scale_up.filter(|_| teardown.completed && unbind == UnbindStep::Done),
        scaling: ScalingRemoval::Delete(teardown),
        unbind,
        workloads,
        service_account: if is_final {
            ServiceAccountRemoval::Delete
        } else {
            ServiceAccountRemoval::Keep
        },
        next,
    }
}

fn scale_up_after_unbinding(observed: &Observed) -> Option<ScaleFromZero> {
    super::scale_from_zero::plan_scale_up(observed, observed.unbinding()?.scaled.as_ref()?)
}

/// Plans the removal of the sidecars, which comes before the deletion of the queue (BIND-43).
fn plan_unbind(observed: &Observed, scales_up: bool, now: Timestamp) -> UnbindStep {
    let Some(binding) = &observed.binding else {
        return UnbindStep::Done;
    };
    let Some(unbinding) = binding.unbinding() else {
        return UnbindStep::Unknown;
    };
    let previous = &observed.previous;
    let rollout = previous.rollout.as_ref();
    // Objects in `rollAnnotations` are read even if the target does not resolve.
    let requested = rollout
        .filter(|rollout| rollout.value != UNBIND_MARKER && previous.roll_annotations.is_empty());
    let may_have_fields = requested.is_some()
        || previous.handoff_uid.is_some()
        || previous.template.is_some()
        || (matches!(unbinding.unresolved, Some(Unresolved::Forbidden(_)))
            && (previous.bound_since.is_some() || previous.resolved_target.is_some()));
    let unresolved = unbinding.unresolved.as_ref();
    let unresolved = unresolved.map(|why| UnresolvedTarget {
        reason: why.text(),
        may_have_fields,
    });
    let last_action = unbind::last_action(observed);
    let previous_pods = last_action.and_then(|it| it.pods);
    let acted_at = last_action.and_then(|it| it.since.as_ref()).map(|it| it.0);
    let since_last_action = acted_at.and_then(|time| now.duration_since(time).try_into().ok());
    let deleted_at = observed.actor.deleted.as_ref().map(|it| it.0);
    unbind::decide(&unbind::UnbindInputs {
        actor: &observed.actor.metadata.uid,
        skip: unbinding.skip,
        pods: &unbinding.pods,
        unmanaged_pod: unbinding.unmanaged_pod.as_deref(),
        has_terminating: unbinding.has_terminating,
        scaled_to_zero: unbinding.scaled_to_zero && scales_up,
        availability: unbinding.availability.as_ref(),
        previous_pods,
        since: acted_at.or(deleted_at),
        limit: observed.progress_limit(),
        now,
        method: unbinding.roll.as_ref(),
        objects: &unbinding.objects,
        unresolved,
        since_last_action,
        limits: unbinding.limits.clone(),
    })
}

/// Once nothing scales the workload and no other controller's pod has the sidecar: delete the workload, then wait for
/// its pods, then delete the queue.
fn after_unbinding(
    observed: &Observed,
    workloads: Vec<Arc<WorkloadRecord>>,
    now: Timestamp,
) -> (Vec<WorkloadRemoval>, NextPhase) {
    if let Some(adoption) = plan_adoption(observed, &workloads, now) {
        return adoption;
    }
    if !workloads.is_empty() {
        let poll_after = workloads
            .iter()
            .filter_map(|workload| unwatched_poll_interval(workload))
            .min();
        let active = workloads
            .into_iter()
            .filter(|workload| !workload.metadata.deleting);
        let removals = active.map(WorkloadRemoval::Delete).collect();
        return (removals, NextPhase::Wait(poll_after));
    }
    let queues = queues_to_delete(observed);
    let wait = wait_for_pods(observed, now).filter(|_| !queues.is_empty());
    let next = wait.map_or(NextPhase::FinalStep { queues }, |wait| {
        NextPhase::Wait(Some(wait))
    });
    (Vec::new(), next)
}

fn our_workloads(observed: &Observed) -> Vec<Arc<WorkloadRecord>> {
    let desired = observed.workload.ours();
    desired
        .into_iter()
        .chain(&observed.previous_workload)
        .cloned()
        .collect()
}

/// No queue is deleted if the user retains it or disabled queue management (FIN-4).
fn queues_to_delete(observed: &Observed) -> Vec<QueueRemoval> {
    if !observed.queues_managed
        || observed.keeps_queues()
        || observed.actor.annotations.skip_queue_deletion
    {
        return Vec::new();
    }
    let known = observed.queues.to_delete();
    let maybe_created = observed.queues.maybe_created.iter();
    let all = known.chain(maybe_created.map(|queue| (queue, QueueEvidence::MaybeCreated)));
    all.map(|(queue, evidence)| QueueRemoval {
        queue: queue.clone(),
        evidence,
    })
    .collect()
}

/// How long to wait for the actor's pods to terminate.
fn wait_for_pods(observed: &Observed, now: Timestamp) -> Option<Duration> {
    time_left(
        observed,
        observed.pods.iter().chain(&observed.unmanaged_pods),
        now,
    )
}

/// How long these pods may still delay the deletion.
fn time_left<'a>(
    observed: &Observed,
    pods: impl Iterator<Item = &'a Arc<PodRecord>>,
    now: Timestamp,
) -> Option<Duration> {
    let grace = Duration::from_secs(observed.deletion.grace_seconds.into());
    // A pod's `deletionTimestamp` is the end of its grace period. A pod that is not terminating yet gets its grace
    // period from the actor's deletion, or from when this process became leader, if that was later.
    let started = observed
        .actor
        .deleted
        .as_ref()?
        .0
        .max(observed.leading_since);
    let default_deadline = started.checked_add(grace).ok()?;
    let pods = pods.filter(|pod| !pod.finished);
    let deadlines = pods.map(|pod| pod.deleted.as_ref().map_or(default_deadline, |by| by.0));
    let limit = deadlines.max()?.checked_add(GRACE_PERIOD_MARGIN).ok()?;
    Duration::try_from(limit.duration_since(now))
        .ok()
        .filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests;
