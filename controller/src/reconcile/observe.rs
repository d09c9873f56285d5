//! Observes the cluster: reads the stores, and queries the broker if the state of the queue is not known.
//!
//! It writes nothing to the API server or a broker. In memory, it changes only what a read needs or shows at once:
//!
//! - `Bindings::{register_target, set_pod_match, set_scale_target}` register what the actor depends on before that is
//!   read, so that no change in between is missed and, if two actors bind one target at the same time, at least one
//!   observes the other (BIND-45). `binding/reading.rs` remembers the kinds and the target that it has found.
//! - `UnrecordedQueues::add_maybe_created` lists the queues that an earlier process may have created, before one is
//!   looked up.
//!
//! Everything else that later reconciles should know is returned as data, in
//! [`MemoryUpdates`](crate::reconcile::model::observed::MemoryUpdates).

mod actor_pods;
mod availability;
pub mod binding;
mod child;
mod children;
mod drain;
mod queue;
pub mod queue_name_taken;
pub mod rollout;
mod shared_target;
mod target_faults;
pub mod unbinding;

use std::sync::Arc;

use actor_pods::ActorPods;
use asya_shared::api::{AdoptionPolicy, AsyncActorStatus, QueueStatus, WorkloadKind};
use asya_shared::config::TransportsConfig;
use asya_shared::transport::ActorQueue;
use children::{Children, ScalingQuery};
use k8s_openapi::jiff::Timestamp;
use queue::QueueResult;
use queue_name_taken::{DesiredState, desired_unless_name_taken};
use unbinding::LeftBehind;

use super::desired::Desired;
use super::model::binding::ObservedBinding;
use super::model::child::{ChildOwnership, is_actor_or_predecessor};
use super::model::drain::DrainState;
use super::model::known_queues::{KnownQueues, UnlistedQueues};
use super::model::observed::{
    DeletionSettings, MemoryUpdates, Observed, QueueNameTaken, keeps_queues, receives_messages,
};
use crate::broker::depths::ReportedDepth;
use crate::context::Context;
use crate::fault::{Error, Fault};
use crate::record::{ActorRecord, AutoscalerTarget, Controller, Key, Metadata, PodRecord};
use crate::scaling::autoscalers::{Autoscalers, finalizer_expired};

/// Observes one actor; returns `None` if it no longer exists.
///
/// # Errors
/// When a read from the API server fails, a broker is too busy to count the messages of an actor being deleted, or the
/// actor turns out to be orphaned.
pub async fn observe(
    context: &Context,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Observed>, Error> {
    let Some(actor) = context.stores.actors.get(key) else {
        return Ok(None);
    };
    // Read first, so that every decision based on pods knows at least these.
    let known_pods = context.stores.pods.of_actor(key);
    let intent = Intent::observe(context, actor, now).await?;
    let observed = observe_intent(context, intent, known_pods, now).await?;
    // The garbage collector may have released the objects while a broker was asked: what was observed before that would
    // count them as deleted.
    let orphans = observed.deletion.orphans;
    if !orphans && is_released(context, &observed.actor, &observed.previous) {
        return Err(Error::Stale("the actor's objects"));
    }
    Ok(Some(observed))
}

/// What an actor should become, and what that depends on.
struct Intent {
    actor: Arc<ActorRecord>,
    previous: AsyncActorStatus,
    desired: Result<Arc<Desired>, Fault>,
    queue_name_taken: Option<QueueNameTaken>,
    deletion: DeletionSettings,
    queues: KnownQueues,
    drain: Option<DrainState>,
    memory_updates: MemoryUpdates,
}

impl Intent {
    async fn observe(
        context: &Context,
        actor: Arc<ActorRecord>,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let previous = actor.decode_status();
        let scaled_kinds = scaled_kinds(context, &actor, now);
        let DesiredState {
            desired,
            queue_name_taken,
        } = desired_unless_name_taken(context, &actor, &previous, &scaled_kinds);
        let mut deletion = DeletionSettings::of(&actor);
        deletion.orphans |= is_released(context, &actor, &previous);
        let queues = known_queues(context, &actor, &previous, desired.as_deref());
        let drain = drain::observe(context, &actor, &previous, &deletion, &queues, now).await?;
        Ok(Self {
            actor,
            previous,
            desired,
            queue_name_taken,
            deletion,
            queues,
            drain: drain.state,
            memory_updates: MemoryUpdates {
                depths: drain.depths,
                ..MemoryUpdates::default()
            },
        })
    }

    fn key(&self) -> &Key {
        &self.actor.metadata.key
    }

    /// The desired state, while the actor's objects should exist.
    fn to_ensure(&self) -> Option<&Desired> {
        let receives_messages = receives_messages(&self.actor, self.drain.as_ref());
        self.desired.as_deref().ok().filter(|_| receives_messages)
    }

    fn needs_service_account(&self) -> bool {
        let standalone = self.to_ensure().and_then(Desired::standalone);
        standalone.is_some_and(|it| it.service_account.is_some())
    }

    fn ownership(&self) -> ChildOwnership {
        ChildOwnership {
            // Do not adopt objects only to delete them.
            adopts: self.to_ensure().is_some_and(|desired| {
                desired.spec.effective_adoption_policy() == AdoptionPolicy::IfUnowned
            }),
            actor: Arc::clone(&self.actor),
        }
    }

    /// What the actor leaves behind, if it is torn down.
    fn left_behind(&self) -> Option<LeftBehind> {
        let drain = self.drain.as_ref();
        (!receives_messages(&self.actor, drain)).then(|| LeftBehind {
            orphans: self.deletion.orphans,
            keeps_queues: keeps_queues(&self.actor, drain),
        })
    }
}

/// Observes the actor's objects, the target of a binding, the pods, and then the queue.
async fn observe_intent(
    context: &Context,
    intent: Intent,
    known_pods: Vec<Arc<PodRecord>>,
    now: Timestamp,
) -> Result<Observed, Error> {
    let ownership = intent.ownership();
    let children = Children {
        context,
        ownership: &ownership,
        bypasses_cache: bypasses_cache(context, &intent),
    };
    let actor = &intent.actor;
    let desired = intent.desired.as_deref();
    let kind = desired_kind(context, actor, desired, intent.queue_name_taken.as_ref());
    let workloads = children.workloads(kind).await?;
    let service_account = children.service_account(intent.needs_service_account());
    let service_account = service_account.await?;
    let pods = ActorPods::list(context, actor, &workloads.orphaned);
    let creation_failure = workloads.desired.ours().and_then(|workload| {
        let failures = &context.creation_failures;
        failures.of_workload(workload, &pods.own, now)
    });
    let binding = observe_binding(context, &intent).await?;
    let scaling = children.scaling(scaling_query(&intent, binding.as_ref()));
    let scaling = scaling.await?;
    let recheck_sequence = context.queue_rechecks.last_sequence();
    let depth = reported_depth(context, &intent);
    let QueueResult { queue, failure } = queue::observe(context, &intent).await;
    Ok(Observed {
        known_pods,
        pods: pods.own,
        predecessor_pods: pods.predecessors,
        unmanaged_pods: pods.unmanaged,
        creation_failure,
        service_account,
        scaling,
        binding,
        workload: workloads.desired,
        previous_workload: workloads.previous,
        ownership,
        queue,
        recheck_sequence,
        depth,
        queues_managed: context.installation.queues_managed,
        webhook: context.installation.webhook,
        deadlines: context.installation.deadlines,
        leading_since: context.leading_since.get().copied().unwrap_or(now),
        actor: intent.actor,
        previous: intent.previous,
        desired: intent.desired,
        queue_name_taken: intent.queue_name_taken,
        deletion: intent.deletion,
        queues: intent.queues,
        drain: intent.drain,
        memory_updates: MemoryUpdates {
            broker_failure: failure,
            ..intent.memory_updates
        },
    })
}

/// Whether to read children that no watch shows from the API server.
fn bypasses_cache(context: &Context, intent: &Intent) -> bool {
    let name_taken = context.stores.foreign_names.is_taken(intent.key());
    let is_desired = intent.to_ensure().is_some();
    child::must_bypass_cache(&intent.actor, &intent.previous, is_desired, name_taken)
}

/// The workload kind in the spec or, if the spec cannot be acted on, the kind that exists.
fn desired_kind(
    context: &Context,
    actor: &ActorRecord,
    desired: Result<&Desired, &Fault>,
    name_taken: Option<&QueueNameTaken>,
) -> WorkloadKind {
    let standalone = desired.ok().and_then(Desired::standalone);
    let kind = standalone.map(|it| it.kind);
    match kind.or(name_taken.and_then(|it| it.kind)) {
        Some(kind) => kind,
        None if context
            .workloads
            .cached(WorkloadKind::StatefulSet, &actor.metadata.key)
            .is_some() =>
        {
            WorkloadKind::StatefulSet
        }
        None => WorkloadKind::Deployment,
    }
}

/// Observes the target of a binding, and registers what the actor's queue scales.
async fn observe_binding(
    context: &Context,
    intent: &Intent,
) -> Result<Option<ObservedBinding>, Error> {
    let desired = intent.desired.as_deref();
    let actor = &intent.actor;
    let previous = &intent.previous;
    let binding = binding::observe(context, actor, desired, previous, intent.left_behind()).await?;
    if let Some(binding) = &binding {
        let scaled = binding.target_scaling().map(|it| &*it.target.name);
        context.bindings.set_scale_target(intent.key(), scaled);
    }
    Ok(binding)
}

fn scaling_query<'a>(intent: &'a Intent, binding: Option<&'a ObservedBinding>) -> ScalingQuery<'a> {
    let target_scaling = binding.and_then(ObservedBinding::target_scaling);
    let standalone = intent.to_ensure().and_then(Desired::standalone);
    ScalingQuery {
        objects: match target_scaling {
            Some(it) => Some(&it.objects),
            None => standalone.and_then(|it| it.scaling.as_ref()),
        },
        target: target_scaling.map_or(&*intent.key().name, |it| &*it.target.name),
        was_scaled: intent.previous.scaled_object_ref.is_some(),
    }
}

/// Whether the garbage collector has removed our owner reference from an object that we created, as it does after a
/// deletion with propagation policy Orphan. This process may have missed the finalizer that says so (FW-23 (g)).
fn is_released(context: &Context, actor: &ActorRecord, previous: &AsyncActorStatus) -> bool {
    if !actor.metadata.deleting {
        return false;
    }
    let key = &actor.metadata.key;
    let is_released = |object: &Metadata| {
        let mut created = previous.inventory.iter();
        object.controller.is_none() && created.any(|it| it.uid.as_deref() == Some(&*object.uid))
    };
    let kinds = [WorkloadKind::Deployment, WorkloadKind::StatefulSet];
    let mut workloads = kinds
        .iter()
        .filter_map(|kind| context.workloads.cached(*kind, key));
    let scaled_object = context.scaled_objects.store.get(key);
    workloads.any(|it| is_released(&it.metadata))
        || scaled_object.is_some_and(|it| is_released(&it.metadata))
}

fn reported_depth(context: &Context, intent: &Intent) -> ReportedDepth {
    let counted = intent.memory_updates.depths.last();
    let name_taken = intent.queue_name_taken.as_ref();
    queue::reported_depth(context, &intent.actor, name_taken, counted)
}

/// Kinds for which a workload with the actor's name is autoscaled, by our `ScaledObject` or by another autoscaler. We
/// do not set their replicas (WRK-3, SAFE-25).
fn scaled_kinds(context: &Context, actor: &ActorRecord, now: Timestamp) -> Vec<WorkloadKind> {
    let key = &actor.metadata.key;
    let our_scaled_object = context
        .scaled_objects
        .store
        .get(key)
        .filter(|it| is_controlled_by(it.metadata.controller.as_ref(), actor));
    // One that is being deleted no longer counts once KEDA's time to release it has expired.
    let is_scaled_by_us = our_scaled_object
        .as_ref()
        .is_some_and(|it| !finalizer_expired(it, now));
    let hpas = context.stores.hpas.of_actor(key);
    let scaled_objects = context.scaled_objects.store.of_actor(key);
    let kinds = [WorkloadKind::Deployment, WorkloadKind::StatefulSet];
    let is_scaled = |kind: &WorkloadKind| {
        let target = AutoscalerTarget::workload(*kind, &key.name);
        let autoscalers = Autoscalers {
            actor: &key.name,
            scaled_object: our_scaled_object.as_ref().map(|it| &*it.metadata.uid),
            hpas: &hpas,
            scaled_objects: &scaled_objects,
        };
        is_scaled_by_us || autoscalers.competing_autoscaler(&target).is_some()
    };
    kinds.into_iter().filter(is_scaled).collect()
}

fn is_controlled_by(controller: Option<&Controller>, actor: &ActorRecord) -> bool {
    controller.is_some_and(|owner| is_actor_or_predecessor(owner, actor))
}

/// The queues that the actor has or had. Unrecorded queues are left out if the actor's queues are kept anyway.
fn known_queues(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    desired: Result<&Desired, &Fault>,
) -> KnownQueues {
    let claims = &context.queue_claims;
    let transports = &context.installation.transports;
    let key = &actor.metadata.key;
    let holder_of = |queue: &QueueStatus| {
        let address = (&*queue.transport, &*queue.name);
        claims.queue_name_holder_for(transports, address, key)
    };
    let unrecorded = &context.unrecorded_queues;
    unrecorded.add_maybe_created(key, || {
        let desired = desired.ok()?;
        Some(maybe_created_queues(desired, actor, previous, transports))
    });
    let (confirmed, maybe_created) = if keeps_queues(actor, None) {
        (Vec::new(), Vec::new())
    } else {
        (unrecorded.confirmed(key), unrecorded.maybe_created_by(key))
    };
    let unlisted = UnlistedQueues {
        confirmed: &confirmed,
        maybe_created: &maybe_created,
    };
    KnownQueues::from_status(previous, unlisted, desired, transports, holder_of)
}

/// The queues that no status records and that an earlier process may have created: the desired one, which this
/// process adds only once it has found it, and those on other transports.
fn maybe_created_queues(
    desired: &Desired,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    transports: &TransportsConfig,
) -> Vec<(QueueStatus, ActorQueue)> {
    let queue = desired.queue_with_dead_letters();
    let verified = previous.queue.as_ref();
    let is_recorded = verified.is_some_and(|verified| verified.is_same_queue(&queue));
    let is_possible = desired.transport.queues().auto_create && !is_recorded;
    let mut possible = Vec::new();
    possible.extend(is_possible.then(|| (queue, desired.queue_of(actor))));
    let moved = may_have_moved(actor, previous);
    let is_listed = |queue: &QueueStatus| {
        let mut retired = previous.retired_queues.iter();
        retired.any(|it| it.unconfirmed && it.is_same_queue(queue))
    };
    let elsewhere = desired.queues_elsewhere(actor, transports).into_iter();
    possible.extend(elsewhere.filter(|(queue, _)| moved || is_listed(queue)));
    possible
}

/// Whether the actor may have had a queue on another transport that no status records: its spec has changed since the
/// last one that did, and the process that acted upon it may have been interrupted.
fn may_have_moved(actor: &ActorRecord, previous: &AsyncActorStatus) -> bool {
    let verified = previous.queue.as_ref();
    let verified = verified.and_then(|queue| queue.verified_generation);
    actor.generation > 1 && verified != Some(actor.generation)
}

#[cfg(test)]
mod tests;
