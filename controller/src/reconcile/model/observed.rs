//! The observed state of an actor, from which the plan is computed.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{
    AsyncActorStatus, BindingStrategy, GRACEFUL_SHUTDOWN_SECONDS, QueueDeletionPolicy, Timeout,
    WorkloadKind,
};
use asya_shared::inject::bound::ProbeResult;
use asya_shared::queue_claims::ClaimKind;
use asya_shared::scaling::{ScalingObjects, TriggerError};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::binding::{ObservedBinding, ObservedInjection, Resolved, ResolvedBinding};
use super::child::{Child, ChildOwnership};
use super::known_queues::KnownQueues;
use super::rollout::{ObservedRollout, ObservedUnbinding};
use super::target_pods::actor_hash;
use crate::broker::depths::ReportedDepth;
use crate::broker::rechecks::RecheckSequence;
use crate::broker::{BrokerError, Depth, QueueCheck};
use crate::context::Deadlines;
use crate::fault::{Fault, Requeue};
use crate::pods::creation_failures::PodCreationFailure;
use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::desired::{Desired, DesiredBinding, Standalone};
use crate::reconcile::model::drain::DrainState;
use crate::record::{
    ActorRecord, ChildRecord, HpaRecord, Key, PodRecord, ScaledObjectRecord, TriggerAuthentication,
    WorkloadRecord,
};

pub struct Observed {
    pub actor: Arc<ActorRecord>,
    /// The desired state, or why it cannot be reached.
    pub desired: Result<Arc<Desired>, Fault>,
    /// Set while another actor owns a queue name that this one needs (QUE-3).
    pub queue_name_taken: Option<QueueNameTaken>,
    /// Decides whether an object under one of the actor's names is ours.
    pub ownership: ChildOwnership,
    /// The stored status; empty if it cannot be read.
    pub previous: AsyncActorStatus,
    /// The object under the workload's name, of the desired kind.
    pub workload: Child<WorkloadRecord>,
    /// Our workload of the previous kind, before a change between `Deployment` and `StatefulSet` (WRK-6).
    pub previous_workload: Option<Arc<WorkloadRecord>>,
    /// Why its pods cannot be created, if the workload's own status does not say so.
    pub creation_failure: Option<PodCreationFailure>,
    /// The object under the `ServiceAccount`'s name.
    pub service_account: Child<ChildRecord<ServiceAccount>>,
    /// The autoscalers of the workload.
    pub scaling: ObservedScaling,
    /// The target and its pods, in binding mode.
    pub binding: Option<ObservedBinding>,
    /// The pods with the actor's label that were known when this observation began.
    pub known_pods: Vec<Arc<PodRecord>>,
    /// Pods of its workload, in standalone mode.
    pub pods: Vec<Arc<PodRecord>>,
    /// Pods that an earlier actor of this name left: those of a workload of this name that is not the actor's (FW-23),
    /// and those with the sidecar of an earlier binding. They may still consume from its queue, but say nothing about
    /// this actor's workload.
    pub predecessor_pods: Vec<Arc<PodRecord>>,
    /// Pods without a controller, because their workload was deleted without them (FW-22). They may consume as well,
    /// until the next workload with the actor's name adopts them.
    pub unmanaged_pods: Vec<Arc<PodRecord>>,
    pub queue: ObservedQueue,
    /// The rechecks that had been requested when this observation began; later ones remain pending.
    pub recheck_sequence: RecheckSequence,
    /// The queues that the actor has or had.
    pub queues: KnownQueues,
    /// The queue depth to report.
    pub depth: ReportedDepth,
    /// Whether the operator may create, change and delete the queue (QUE-12).
    pub queues_managed: bool,
    /// Whether the operator runs with its webhook.
    pub webhook: bool,
    /// How long transient states are tolerated.
    pub deadlines: Deadlines,
    /// How objects are deleted.
    pub deletion: DeletionSettings,
    /// The state of a deletion that requires an empty queue (`deletionPolicy` `Drain` or `DeleteIfEmpty`).
    pub drain: Option<DrainState>,
    /// When this process became the leader.
    pub leading_since: Timestamp,
    /// Updates of the memory that later reconciles use.
    pub memory_updates: MemoryUpdates,
}

/// Observations of a reconcile that later ones use.
#[derive(Clone, Debug, Default)]
pub struct MemoryUpdates {
    /// The broker did not answer for a verified queue.
    pub broker_failure: Option<BrokerError>,
    /// Message counts.
    pub depths: Vec<CountedDepth>,
}

/// A count of the messages in one of the actor's queues.
#[derive(Clone, Copy, Debug)]
pub struct CountedDepth {
    pub depth: Depth,
    /// Drop earlier counts first.
    pub resets: bool,
}

/// How objects are deleted. The queue's policy is in the [`ActorRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionSettings {
    /// Keep the children and the queue (FW-23).
    pub orphans: bool,
    /// Termination grace period of the pods, in seconds.
    pub grace_seconds: u32,
}

/// Observed KEDA objects and autoscalers of others.
#[derive(Debug)]
pub struct ObservedScaling {
    /// Whether KEDA's CRDs are installed.
    pub installed: bool,
    /// The object under the `ScaledObject`'s name.
    pub scaled_object: Child<ScaledObjectRecord>,
    /// The object under the `TriggerAuthentication`'s name.
    pub trigger_authentication: Child<ChildRecord<TriggerAuthentication>>,
    /// All `ScaledObject`s that concern the actor, ours included.
    pub scaled_objects: Vec<Arc<ScaledObjectRecord>>,
    /// All HPAs that concern the actor.
    pub hpas: Vec<Arc<HpaRecord>>,
    /// How long the `ScaledObject` of a binding has been missing because KEDA is not installed; `None` if it is not
    /// missing, or the queue did not scale the target before.
    pub lost_for: Option<Duration>,
}

#[derive(Clone, Debug)]
pub enum ObservedQueue {
    /// The operator does not manage queues (QUE-12).
    Unmanaged,
    /// Not queried: this reconcile does not depend on it.
    NotQueried,
    /// Already verified for this generation (QUE-8).
    Verified,
    /// The broker's answer.
    Checked(QueueCheck),
    /// Not answered this time: the queue was verified earlier and the broker has not failed often enough in a row to
    /// report it (QUE-10), or other calls to a slow broker are ahead of ours (OPS-22). Check again at the given time.
    Deferred(Requeue),
    /// The broker returned an error.
    Unknown(BrokerError),
}

impl DeletionSettings {
    /// The settings of an actor.
    pub fn of(actor: &ActorRecord) -> Self {
        Self {
            orphans: actor.deletion.orphans,
            grace_seconds: actor
                .deletion
                .grace_seconds
                .unwrap_or(GRACEFUL_SHUTDOWN_SECONDS),
        }
    }
}

impl Observed {
    /// Whether the queues stay at the broker when they are no longer used.
    pub fn keeps_queues(&self) -> bool {
        keeps_queues(&self.actor, self.drain.as_ref())
    }

    /// The desired state of a standalone actor, whose workload we create.
    pub fn standalone(&self) -> Option<&Standalone> {
        self.desired.as_deref().ok()?.standalone()
    }

    /// The desired state of a bound actor, whose workload another controller creates.
    pub fn desired_binding(&self) -> Option<&DesiredBinding> {
        self.desired.as_deref().ok()?.desired_binding()
    }

    /// The KEDA objects to apply, or why no trigger can be built for the queue yet; `None` while scaling is off.
    pub fn scaling_objects(&self) -> Option<Result<&ScalingObjects, &TriggerError>> {
        let objects = match &self.binding {
            Some(binding) => &binding.target_scaling()?.objects,
            None => self.standalone()?.scaling.as_ref()?,
        };
        Some(objects.as_ref())
    }

    /// Whether the spec lets the queue scale the pods.
    pub fn scales(&self) -> bool {
        let is_scaled = self
            .standalone()
            .is_some_and(|standalone| standalone.scaling.is_some());
        is_scaled || self.desired_binding().is_some_and(|bound| bound.scales)
    }

    /// The binding, once its target is resolved.
    pub fn resolved_binding(&self) -> Option<&ResolvedBinding> {
        self.binding.as_ref()?.resolved()
    }

    /// The pods that should get a binding's sidecar; `None` until the target has been looked up.
    pub fn injection(&self) -> Option<&ObservedInjection> {
        self.binding.as_ref()?.injection()
    }

    /// The remaining clean-up for a binding being deleted; `None` while that is unknown.
    pub fn unbinding(&self) -> Option<&ObservedUnbinding> {
        self.binding.as_ref()?.unbinding()
    }

    /// The target of a binding, once it is resolved.
    pub fn resolved(&self) -> Option<&Resolved> {
        Some(&self.resolved_binding()?.target)
    }

    /// The contention over fields of the target; `None` until the target is resolved.
    pub fn contention_history(&self) -> Option<ContentionHistory<'_>> {
        self.resolved()?
            .contention_history(&self.previous, self.actor.generation)
    }

    /// The state that a rollout decision needs.
    pub fn rollout(&self) -> Option<&ObservedRollout> {
        self.resolved_binding()?.rollout.as_ref()
    }

    /// Whether a dry run showed that the API server admits pods with the sidecar of the current spec (SAFE-1). Strategy
    /// Template makes no dry run, because the target's own controller replaces the pods.
    pub fn is_injection_verified(&self) -> bool {
        let Some(bound) = self.desired_binding() else {
            return false;
        };
        if bound.strategy == BindingStrategy::Template {
            return self.previous.template.is_some();
        }
        let hash = actor_hash(bound.injected_hash.as_deref());
        let injection = self.previous.injection.as_ref();
        let verified = injection.and_then(|it| it.verified_actor_hash.as_deref());
        hash.is_some() && verified == hash && self.probe_result() == Some(ProbeResult::Verified)
    }

    /// Whether the webhook injects the sidecar into the target's pods, according to status; `None` with strategy
    /// Template or without a hash.
    pub fn probe_result(&self) -> Option<ProbeResult> {
        let bound = self.desired_binding()?;
        let hash = actor_hash(bound.injected_hash.as_deref())?;
        let by_pod = bound.strategy == BindingStrategy::Pod;
        by_pod.then(|| ProbeResult::from_status(self.previous.injection.as_ref(), hash))
    }

    /// A pod of the target to dry-run.
    pub fn probe_pod(&self) -> Option<&Value> {
        let from_rollout = self.rollout().and_then(|it| it.probe_pod.as_ref());
        from_rollout.or_else(|| self.injection()?.probe.as_ref()?.pod.as_ref())
    }

    /// How long a change may continue without another pod becoming ready; `None` means no limit.
    pub fn progress_limit(&self) -> Option<Duration> {
        let desired = self.desired.as_ref().ok();
        let timeout = desired.map_or_else(
            || Timeout::default().effective(),
            |desired| desired.spec.effective_timeout(),
        );
        let seconds = timeout.progress?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// How long a pod may run without being ready; `None` means no limit.
    pub fn unready_limit(&self) -> Option<Duration> {
        let default = self.deadlines.unready;
        let desired = self.desired.as_ref();
        desired.map_or(default, |desired| desired.spec.readiness_limit(default))
    }

    /// The actor's namespace and name.
    pub fn key(&self) -> &Key {
        &self.actor.metadata.key
    }

    /// The pods that may consume from this actor's queues.
    pub fn consuming_pods(&self) -> impl Iterator<Item = &Arc<PodRecord>> {
        let owned = self.pods.iter().chain(&self.predecessor_pods);
        owned.chain(&self.unmanaged_pods)
    }

    /// Whether existing pods already consume from the desired queue.
    pub fn pods_use_queue_of(&self, desired: &Desired) -> bool {
        self.previous.queue.is_none() || self.records_queue_of(desired)
    }

    /// Whether status names the desired queue as the actor's.
    pub fn records_queue_of(&self, desired: &Desired) -> bool {
        let previous = self.previous.queue.as_ref();
        previous.is_some_and(|previous| previous.is_same_queue(&desired.queue()))
    }

    /// Whether the queue was verified for the current spec (QUE-8).
    pub fn is_verified(&self, desired: &Desired) -> bool {
        is_queue_verified(&self.actor, &self.previous, desired)
    }
}

/// Whether the queue was verified for the current spec, by status (QUE-8). A status from before hashes were recorded
/// counts as verified for its generation: verifying all of these at once would cost a write per actor, and the health
/// check detects drift anyway.
pub fn is_queue_verified(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    desired: &Desired,
) -> bool {
    let Some(queue) = &previous.queue else {
        return false;
    };
    queue.is_same_queue(&desired.queue())
        && queue.verified_generation == Some(actor.generation)
        && queue
            .verified_hash
            .as_ref()
            .is_none_or(|hash| *hash == desired.queue_hash)
}

/// Whether the actor's pods should receive messages: also during deletion, while it waits until its queue is empty
/// (QUE-41). [`ActorRecord::receives_messages`] derives the same from status.
pub fn receives_messages(actor: &ActorRecord, drain: Option<&DrainState>) -> bool {
    !actor.metadata.deleting || matches!(drain, Some(DrainState::Waiting(_)))
}

/// Whether an actor's queues stay at the broker when they are no longer used: by their deletion policy, or because they
/// may hold messages while their namespace is being deleted (QUE-40).
pub fn keeps_queues(actor: &ActorRecord, drain: Option<&DrainState>) -> bool {
    actor.queue_policy == QueueDeletionPolicy::Retain
        || matches!(drain, Some(DrainState::KeepQueues(_)))
}

/// Whether to leave the actor alone because it has been ready once with this spec, even if its objects change or
/// the installation would now create them differently (FW-21). Deletion raises the generation without changing the
/// spec, and edits during deletion only concern the deletion, so a deleting actor counts as well.
pub fn is_reconcile_once_done(actor: &ActorRecord, previous: &AsyncActorStatus) -> bool {
    let ready = previous.ready_generation;
    let is_current = |ready: i64| ready == actor.generation || actor.metadata.deleting;
    actor.annotations.once && ready.is_some_and(is_current)
}

/// A queue name that this actor needs and another actor owns.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueNameTaken {
    /// What this actor needs the name for: [`ClaimKind::Queue`] or [`ClaimKind::DeadLetters`].
    pub contested: ClaimKind,
    /// Hash of the workload that would consume from it.
    pub workload_hash: Option<String>,
    /// Kind of that workload. It lacks our labels, so no watch covers it, and it is looked up by kind.
    pub kind: Option<WorkloadKind>,
}
