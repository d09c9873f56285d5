//! What there is: the stores, and the queue where its state is not known.

mod availability;
pub mod binding;
mod child;
pub mod contested;
mod drain;
pub mod known;
pub mod probe_pod;
mod queue;
pub mod rollout;
mod shared_target;
pub mod unbinding;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::GRACEFUL_SHUTDOWN_SECONDS;
use asya_shared::api::{
    AdoptionPolicy, AsyncActorStatus, BindingStrategy, QueueDeletionPolicy, QueueStatus, Timeout,
    WorkloadKind,
};
use asya_shared::inject::bound::Gate;
use asya_shared::inject::service_account_name;
use asya_shared::scaling::{ScalingObjects, Untriggerable, trigger_authentication_name};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use binding::{BindingSeen, Resolved};
use child::{child, is_of};
use contested::{Contested, uncontested};
use known::{KnownQueues, is_same};
use rollout::RolloutSeen;

pub use child::{Child, Ownership};

use super::bound_pods::actor_part;
use super::desired::{Bound, Desired, Standalone};
use super::plan::drain::Drain;
use super::{Context, Deadlines, Error, Fault, Retry};
use crate::queue::depths::Told;
use crate::queue::health::Moment;
use crate::queue::{BrokerError, Standing};
use crate::record::{
    ActorRecord, ChildRecord, Controller, HpaRecord, Key, PodRecord, Record, ScaleTarget,
    ScaledObjectRecord, TriggerAuthentication, WorkloadRecord,
};
use crate::refusals::Refusal;
use crate::scaling::plan::{Autoscalers, is_overdue};
use crate::store::Store;

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
    Unanswered(Retry),
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

/// Reads what one actor's pass needs; `None` when the actor is gone.
///
/// # Errors
/// When the API server does not tell what stands under the workload's name.
pub async fn observe(
    context: &Context,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Observed>, Error> {
    let Some(actor) = context.stores.actors.get(key) else {
        context.doubts.forget(key);
        context.looks.forget(key);
        context.depths.forget(key);
        context.slots.forget(key);
        context.rollouts.forget(key);
        context.stores.strangers.forget(key);
        return Ok(None);
    };
    let previous = actor.told_status();
    let scaled = scaled_kinds(context, &actor, now);
    let (desired, contested) = uncontested(context, &actor, &previous, &scaled);
    let mut deletion = DeletionPolicy::of(&actor);
    let transports = &context.installation.transports;
    let owner_of = |queue: &QueueStatus| {
        let place = (&*queue.transport, &*queue.name);
        context.claims.owner_of(transports, place, key)
    };
    let queues = KnownQueues::of(&previous, desired.as_deref(), transports, owner_of);
    let drain = drain::see(context, (&actor, &previous), (&deletion, &queues), now).await?;
    if matches!(drain, Some(Drain::Abandoned { .. })) {
        deletion.retains_queue = true;
    }
    let works = !actor.metadata.deleting || works_on(drain.as_ref());
    let wanted = desired.as_deref().ok().filter(|_| works);
    let ownership = Ownership {
        // Nothing becomes ours in order to be deleted.
        adopts: wanted.is_some_and(|wanted| {
            wanted.spec.adoption_policy_in_force() == AdoptionPolicy::IfUnowned
        }),
        actor: Arc::clone(&actor),
    };
    let stranger = context.stores.strangers.met_by(key);
    let asks = child::asks(&actor, &previous, wanted.is_some(), stranger);
    let kind = wanted_kind(context, &actor, desired.as_deref(), contested.as_ref());
    // Nothing bears the actor's name where another controller makes the workload.
    let makes = actor.binds_to.is_none();
    let workload = if makes {
        child::workload(context, &ownership, kind, asks).await?
    } else {
        Child::Absent
    };
    let former = context.workloads.seen(other(kind), key).filter(|_| makes);
    let own = wanted.and_then(Desired::standalone);
    let has_role = own.is_some_and(|own| own.service_account.is_some());
    let account = Key::new(&key.namespace, &service_account_name(&key.name));
    let accounts = &context.service_accounts;
    let service_account = child(accounts, &account, &ownership, (has_role, asks)).await?;
    let pods = if makes {
        pods(context, &actor)
    } else {
        Vec::new()
    };
    let refusals = &context.workloads.refusals;
    let refusal = workload.ours();
    let refusal = refusal.and_then(|workload| refusals.of_workload(workload, &pods, now));
    let unbinds = (!works).then_some(&deletion);
    let binding = binding::see(context, &actor, desired.as_deref(), &previous, unbinds).await?;
    let of_target = binding.as_ref().and_then(BindingSeen::scaling_of_target);
    let objects = match of_target {
        Some(it) => Some(&it.objects),
        None => own.and_then(|own| own.scaling.as_ref()),
    };
    if let Some(binding) = &binding {
        let name = binding.scaling_of_target().map(|it| &*it.target.name);
        context.bindings.scales(key, name);
    }
    let scaled_name = of_target.map_or(&*key.name, |it| &*it.target.name);
    let mut observed = Observed {
        queues,
        pods,
        refusal,
        service_account,
        scaling: scaling(context, &ownership, objects, (scaled_name, asks)).await?,
        binding,
        desired,
        previous,
        workload,
        former: former.filter(|former| is_owned(former.metadata.controller.as_ref(), &actor)),
        queue: QueueSeen::NotAsked,
        began: context.doubts.now(),
        depth: queue::depth(context, &actor, contested.as_ref()),
        queues_managed: context.installation.queues_managed,
        deadlines: context.installation.deadlines,
        deletion,
        drain,
        leading_since: context.leading_since.get().copied().unwrap_or(now),
        contested,
        ownership,
        actor,
    };
    observed.queue = queue::look(context, &observed).await;
    Ok(Some(observed))
}

fn works_on(drain: Option<&Drain>) -> bool {
    matches!(drain, Some(Drain::Works(_)))
}

/// The kind that the spec asks for; where it cannot be acted on, that of what there is.
fn wanted_kind(
    context: &Context,
    actor: &ActorRecord,
    desired: Result<&Desired, &Fault>,
    contested: Option<&Contested>,
) -> WorkloadKind {
    let own = desired.ok().and_then(Desired::standalone);
    match own.map(|own| own.kind).or(contested.and_then(|it| it.kind)) {
        Some(kind) => kind,
        None if context
            .workloads
            .seen(WorkloadKind::StatefulSet, &actor.metadata.key)
            .is_some() =>
        {
            WorkloadKind::StatefulSet
        }
        None => WorkloadKind::Deployment,
    }
}

/// The kinds of which a workload of the actor's name is being scaled, by us or by somebody else: then the number of its
/// pods is not ours (WRK-3, SAFE-25).
fn scaled_kinds(context: &Context, actor: &ActorRecord, now: Timestamp) -> Vec<WorkloadKind> {
    let key = &actor.metadata.key;
    let ours = context
        .scaled_objects
        .store
        .get(key)
        .filter(|it| is_owned(it.metadata.controller.as_ref(), actor) && !is_overdue(it, now));
    let (hpas, scaled_objects) = (
        context.stores.hpas.of_actor(key),
        context.scaled_objects.store.of_actor(key),
    );
    let kinds = [WorkloadKind::Deployment, WorkloadKind::StatefulSet];
    let is_scaled = |kind: &WorkloadKind| {
        let target = ScaleTarget::workload(*kind, &key.name);
        let others = Autoscalers {
            actor: &key.name,
            scaled_object: ours.as_ref().map(|it| &*it.metadata.uid),
            hpas: &hpas,
            scaled_objects: &scaled_objects,
        };
        ours.is_some() || others.rival_on(&target).is_some()
    };
    kinds.into_iter().filter(is_scaled).collect()
}

fn is_owned(controller: Option<&Controller>, actor: &ActorRecord) -> bool {
    controller.is_some_and(|owner| is_of(owner, actor))
}

fn other(kind: WorkloadKind) -> WorkloadKind {
    match kind {
        WorkloadKind::Deployment => WorkloadKind::StatefulSet,
        WorkloadKind::StatefulSet => WorkloadKind::Deployment,
    }
}

async fn scaling(
    context: &Context,
    ownership: &Ownership,
    objects: Option<&Result<ScalingObjects, Untriggerable>>,
    (scaled, asks): (&str, bool),
) -> Result<ScalingSeen, Error> {
    let key = &ownership.actor.metadata.key;
    let installed = context.sees_keda(&key.namespace);
    let objects = objects.filter(|_| installed);
    let authenticates = objects.and_then(|objects| objects.as_ref().ok());
    let authenticates = authenticates.is_some_and(|it| it.trigger_authentication.is_some());
    let name = Key::new(&key.namespace, &trigger_authentication_name(&key.name));
    let (scaled_objects, authentications) =
        (&context.scaled_objects, &context.trigger_authentications);
    Ok(ScalingSeen {
        installed,
        scaled_object: child(scaled_objects, key, ownership, (objects.is_some(), asks)).await?,
        trigger_authentication: child(authentications, &name, ownership, (authenticates, asks))
            .await?,
        scaled_objects: concerning(&scaled_objects.store, key, scaled),
        hpas: concerning(&context.stores.hpas, key, scaled),
    })
}

/// Those of KEDA's objects that are the actor's own, and those that scale what it scales.
fn concerning<R: Record>(store: &Store<R>, key: &Key, scaled: &str) -> Vec<Arc<R>> {
    let mut found = store.of_actor(key);
    if *key.name != *scaled {
        found.extend(store.of_actor(&Key::new(&key.namespace, scaled)));
    }
    found
}

/// A loose pod with copied labels is nobody's: the owner counts, too (STA-1).
fn pods(context: &Context, actor: &ActorRecord) -> Vec<Arc<PodRecord>> {
    let name = &actor.metadata.key.name;
    let mut pods = context.stores.pods.of_actor(&actor.metadata.key);
    pods.retain(|pod| {
        pod.metadata.controller.as_ref().is_some_and(|owner| {
            let set = owner.name.rsplit_once('-').map_or("", |(prefix, _)| prefix);
            match &*owner.kind {
                "ReplicaSet" => set == &**name,
                "StatefulSet" => *owner.name == **name,
                _ => false,
            }
        })
    });
    for pod in &mut pods {
        context.stores.mounts.complete(pod);
    }
    pods
}

#[cfg(test)]
mod tests;
