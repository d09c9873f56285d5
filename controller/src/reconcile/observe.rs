//! Observes the cluster: reads the stores, and asks the broker if the state of the queue is not known.
//!
//! It changes nothing but subscriptions. `Bindings::{register_target, subscribe_pods, subscribe_autoscalers}` record what
//! concerns the actor before that is read, so that no change in between is missed and, of two actors that bind one target
//! at the same time, at least one sees the other (BIND-45). Everything else that later reconciles should know is returned
//! as data, in [`Learned`].

mod availability;
pub mod binding;
mod child;
pub mod contested;
mod drain;
mod queue;
pub mod rollout;
mod shared_target;
pub mod unbinding;

use std::sync::Arc;

use asya_shared::api::{AdoptionPolicy, QueueStatus, WorkloadKind};
use asya_shared::inject::service_account_name;
use asya_shared::scaling::{ScalingObjects, Untriggerable, trigger_authentication_name};
use k8s_openapi::jiff::Timestamp;

use super::model::binding::BindingSeen;
use super::model::child::is_of;
use super::model::known_queues::KnownQueues;
use child::child;
use contested::uncontested;

use super::desired::Desired;
use super::desired::drain::Drain;
use crate::cluster::store::Store;
use crate::context::Context;
use crate::fault::{Error, Fault};
use crate::reconcile::model::child::{Child, Ownership};
use crate::reconcile::model::observed::{
    Contested, DeletionPolicy, Learned, Observed, QueueSeen, ScalingSeen, works_on,
};
use crate::record::{ActorRecord, Controller, Key, PodRecord, Record, ScaleTarget};
use crate::scaling::autoscalers::{Autoscalers, is_overdue};

/// Observes one actor; returns `None` if it no longer exists.
///
/// # Errors
/// When a read from the API server fails, or a broker is too busy to count the messages of an actor being deleted.
pub async fn observe(
    context: &Context,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Observed>, Error> {
    let Some(actor) = context.stores.actors.get(key) else {
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
    let mut learned = Learned::default();
    let known = (&deletion, &queues);
    let drain = drain::see(context, (&actor, &previous), known, (&mut learned, now)).await?;
    if matches!(drain, Some(Drain::Abandoned { .. })) {
        deletion.retains_queue = true;
    }
    let works = !actor.metadata.deleting || works_on(drain.as_ref());
    let wanted = desired.as_deref().ok().filter(|_| works);
    let ownership = Ownership {
        // Do not adopt objects only to delete them.
        adopts: wanted.is_some_and(|wanted| {
            wanted.spec.adoption_policy_in_force() == AdoptionPolicy::IfUnowned
        }),
        actor: Arc::clone(&actor),
    };
    let stranger = context.stores.foreign_names.met_by(key);
    let asks = child::asks(&actor, &previous, wanted.is_some(), stranger);
    let kind = wanted_kind(context, &actor, desired.as_deref(), contested.as_ref());
    // Where another controller creates the workload, no object has the actor's name.
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
    let refusals = &context.refusals;
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
        context.bindings.subscribe_autoscalers(key, name);
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
        began: context.queue_rechecks.now(),
        depth: queue::depth(context, &actor, contested.as_ref(), learned.depths.last()),
        queues_managed: context.installation.queues_managed,
        webhook: context.installation.webhook,
        deadlines: context.installation.deadlines,
        deletion,
        drain,
        leading_since: context.leading_since.get().copied().unwrap_or(now),
        learned,
        contested,
        ownership,
        actor,
    };
    (observed.queue, observed.learned.unanswered) = queue::look(context, &observed).await;
    Ok(Some(observed))
}

/// The workload kind in the spec or, if the spec cannot be acted on, the kind that exists.
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

/// Workload kinds whose workload of the actor's name is autoscaled, by our `ScaledObject` or another autoscaler. We do
/// not set replicas on these (WRK-3, SAFE-25).
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

/// Autoscaling objects that concern the actor itself, and those that concern the object it scales.
fn concerning<R: Record>(store: &Store<R>, key: &Key, scaled: &str) -> Vec<Arc<R>> {
    let mut found = store.of_actor(key);
    if *key.name != *scaled {
        found.extend(store.of_actor(&Key::new(&key.namespace, scaled)));
    }
    found
}

/// The pods of the actor's workload. The owner must match too, because a standalone pod may carry copied labels
/// (STA-1).
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
