//! All that a plan is made from.

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{
    AsyncActorStatus, BindingStrategy, GRACEFUL_SHUTDOWN_SECONDS, QueueDeletionPolicy, Timeout,
    WorkloadKind,
};
use asya_shared::inject::bound::Gate;
use asya_shared::scaling::{ScalingObjects, Untriggerable};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::binding::{BindingSeen, Resolved};
use super::bound_pods::actor_part;
use super::child::{Child, Ownership};
use super::known_queues::{KnownQueues, is_same};
use super::rollout::RolloutSeen;
use crate::broker::depths::Told;
use crate::broker::health::Moment;
use crate::broker::{BrokerError, Standing};
use crate::context::Deadlines;
use crate::fault::{Fault, Requeue};
use crate::pods::refusals::Refusal;
use crate::reconcile::desired::drain::Drain;
use crate::reconcile::desired::{Bound, Desired, Standalone};
use crate::record::{
    ActorRecord, ChildRecord, HpaRecord, Key, PodRecord, ScaledObjectRecord, TriggerAuthentication,
    WorkloadRecord,
};

/// All that a plan is made from.
pub struct Observed {
    /// The actor.
    pub actor: Arc<ActorRecord>,
    /// What it asks for, or why it cannot be had.
    pub desired: Result<Box<Desired>, Fault>,
    /// What another actor has of this one's, which then cannot be had (QUE-3).
    pub contested: Option<Contested>,
    /// What decides whose the objects of its names are.
    pub ownership: Ownership,
    /// Its status as stored; empty where that cannot be read.
    pub previous: AsyncActorStatus,
    /// The object under the workload's name, of the kind that is wanted.
    pub workload: Child<WorkloadRecord>,
    /// A workload of ours of the kind that is no longer wanted (WRK-6).
    pub former: Option<Arc<WorkloadRecord>>,
    /// What keeps its pods from being made, where the workload itself does not tell.
    pub refusal: Option<Refusal>,
    /// The object under its `ServiceAccount`'s name.
    pub service_account: Child<ChildRecord<ServiceAccount>>,
    /// What scales the workload.
    pub scaling: ScalingSeen,
    /// The target and its pods, where another controller makes the workload.
    pub binding: Option<BindingSeen>,
    /// Pods of the workload.
    pub pods: Vec<Arc<PodRecord>>,
    /// Its queue.
    pub queue: QueueSeen,
    /// Doubts about it that were raised since are not answered by what was seen.
    pub began: Moment,
    /// The queues that it has or had.
    pub queues: KnownQueues,
    /// What is known of its messages.
    pub depth: Told,
    /// Whether the queue of this actor may be created, changed and deleted (QUE-12).
    pub queues_managed: bool,
    /// How long what may pass may last.
    pub deadlines: Deadlines,
    /// What is to happen at the actor's end.
    pub deletion: DeletionPolicy,
    /// Whether its end waits for its queue to be empty; `None`: it does not.
    pub drain: Option<Drain>,
    /// Since when this process has looked after actors.
    pub leading_since: Timestamp,
}

/// What is to happen at an actor's end, read from the raw spec: one that does not decode may still say
/// that its queue is to stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionPolicy {
    /// Children and queue stay (FW-23).
    pub orphans: bool,
    /// What happens to the queue.
    pub queue: QueueDeletionPolicy,
    /// The queue stays.
    pub retains_queue: bool,
    /// Seconds that a pod has to stop.
    pub grace_seconds: u32,
}

/// What there is of KEDA's and of others that scale.
#[derive(Debug)]
pub struct ScalingSeen {
    /// Whether the API server knows KEDA's kinds.
    pub installed: bool,
    /// The object under the `ScaledObject`'s name.
    pub scaled_object: Child<ScaledObjectRecord>,
    /// The object under the `TriggerAuthentication`'s name.
    pub trigger_authentication: Child<ChildRecord<TriggerAuthentication>>,
    /// All `ScaledObject`s that concern the actor.
    pub scaled_objects: Vec<Arc<ScaledObjectRecord>>,
    /// All HPAs that concern the actor.
    pub hpas: Vec<Arc<HpaRecord>>,
}

/// What is known of the queue.
#[derive(Clone, Debug)]
pub enum QueueSeen {
    /// Nobody asked: nothing depends on it in this pass.
    NotAsked,
    /// Found as wanted earlier, for this generation (QUE-8).
    Verified,
    /// What the broker says.
    Standing(Standing),
    /// Not known for now: found as wanted earlier, and the broker does not answer, which has yet to last (QUE-10), or
    /// others wait for it (OPS-22); with when to look again.
    Unanswered(Requeue),
    /// The broker does not say.
    Unknown(BrokerError),
}

impl DeletionPolicy {
    /// Reads the raw spec.
    pub fn of(actor: &ActorRecord) -> Self {
        let spec: Value = actor
            .spec
            .as_ref()
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let text = |pointer| spec.pointer(pointer).and_then(Value::as_str);
        let number = |pointer| {
            spec.pointer(pointer)
                .and_then(Value::as_u64)
                .and_then(|n| u32::try_from(n).ok())
        };
        let grace = number("/workload/template/spec/terminationGracePeriodSeconds")
            .or_else(|| number("/timeout/gracefulShutdown").filter(|seconds| *seconds > 0));
        Self {
            orphans: text("/deletionPolicy") == Some("Orphan"),
            queue: actor.queue_policy,
            retains_queue: actor.queue_policy == QueueDeletionPolicy::Retain,
            grace_seconds: grace.unwrap_or(GRACEFUL_SHUTDOWN_SECONDS),
        }
    }
}

impl Observed {
    /// What is asked for, where we make the workload.
    pub fn standalone(&self) -> Option<&Standalone> {
        self.desired.as_deref().ok()?.standalone()
    }

    /// What is asked for, where another controller makes the workload.
    pub fn bound(&self) -> Option<&Bound> {
        self.desired.as_deref().ok()?.bound()
    }

    /// What makes KEDA scale the workload, or why KEDA cannot be told of the queue yet; `None` while nothing should.
    pub fn scaling_objects(&self) -> Option<Result<&ScalingObjects, &Untriggerable>> {
        let objects = match &self.binding {
            Some(seen) => &seen.scaling.as_ref()?.as_ref().ok()?.objects,
            None => self.standalone()?.scaling.as_ref()?,
        };
        Some(objects.as_ref())
    }

    /// Whether the queue is to decide the number of pods.
    pub fn scales(&self) -> bool {
        let own = self.standalone().is_some_and(|own| own.scaling.is_some());
        own || self.bound().is_some_and(|bound| bound.scales)
    }

    /// The target of a binding, as far as it is understood.
    pub fn resolved(&self) -> Option<&Resolved> {
        self.binding.as_ref()?.target.as_ref()?.as_deref().ok()
    }

    /// What a rollout of its pods would meet.
    pub fn rollout(&self) -> Option<&RolloutSeen> {
        self.binding.as_ref()?.rollout.as_ref()
    }

    /// Whether the actor is to work: also while its deletion waits for its queue to be empty.
    pub fn works(&self) -> bool {
        !self.actor.metadata.deleting || works_on(self.drain.as_ref())
    }

    /// Whether the API server is known to admit pods with the sidecar that the spec asks for (SAFE-1). With strategy
    /// Template it is not asked: there the target's own controller has replaced pods with it.
    pub fn proved(&self) -> bool {
        let Some(bound) = self.bound() else {
            return false;
        };
        if bound.strategy == BindingStrategy::Template {
            return self.previous.template.is_some();
        }
        let part = actor_part(bound.injected_hash.as_deref());
        let injection = self.previous.injection.as_ref();
        let proved = injection.and_then(|it| it.proved.as_deref());
        part.is_some() && proved == part && self.gate() == Some(Gate::Open)
    }

    /// Whether the webhook gives the sidecar to pods of the target, as status tells it; `None` where it never does.
    pub fn gate(&self) -> Option<Gate> {
        let bound = self.bound()?;
        let part = actor_part(bound.injected_hash.as_deref())?;
        let by_pod = bound.strategy == BindingStrategy::Pod;
        by_pod.then(|| Gate::of(self.previous.injection.as_ref(), part))
    }

    /// A pod of the target for a dry run.
    pub fn probe_pod(&self) -> Option<&Value> {
        let of_rollout = self.rollout().and_then(|seen| seen.probe.as_ref());
        let seen = self.binding.as_ref().and_then(|it| it.probe.as_ref());
        of_rollout.or_else(|| seen?.pod.as_ref())
    }

    /// How long what is under way may go on without a further pod that becomes ready; `None` is for ever.
    pub fn progress_limit(&self) -> Option<Duration> {
        let desired = self.desired.as_ref().ok();
        let timeout = desired.map_or_else(
            || Timeout::default().in_force(),
            |desired| desired.spec.timeout_in_force(),
        );
        let seconds = timeout.progress?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// The actor's name.
    pub fn key(&self) -> &Key {
        &self.actor.metadata.key
    }

    /// Whether the queue was found as it is wanted now (QUE-8). A status of before there were hashes
    /// counts for its generation: to verify them all at once would be a write for every actor, and the
    /// health pass sees what differs.
    pub fn is_verified(&self, desired: &Desired) -> bool {
        let Some(queue) = &self.previous.queue else {
            return false;
        };
        is_same(queue, &desired.queue())
            && queue.verified_generation == Some(self.actor.generation)
            && queue
                .verified_hash
                .as_ref()
                .is_none_or(|hash| *hash == desired.queue_hash)
    }
}

pub fn works_on(drain: Option<&Drain>) -> bool {
    matches!(drain, Some(Drain::Works(_)))
}

/// FW-21: once the actor was ready with this spec, what was made for it is left alone, whatever becomes of it, and
/// whatever the installation would make today. The deletion raises the generation without changing the spec, and what
/// is changed in an actor that is going concerns its end.
pub fn is_done_once(actor: &ActorRecord, previous: &AsyncActorStatus) -> bool {
    let ready = previous.ready_generation;
    let is_it = |ready: i64| ready == actor.generation || actor.metadata.deleting;
    actor.annotations.once && ready.is_some_and(is_it)
}

/// What another actor has of this one's.
#[derive(Clone, Debug, PartialEq)]
pub struct Contested {
    /// Whether it is the queue itself, and not only its dead letter queue.
    pub queue: bool,
    /// Hash of the workload that would receive from it.
    pub workload: Option<String>,
    /// The kind of that: one without our labels is in no watch, and has to be looked for by its kind.
    pub kind: Option<WorkloadKind>,
}
