//! Executes the actions of a schedule.

pub mod owners;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api_server::deletion::Deletion;
use crate::api_server::id::Id;
use crate::api_server::managed::merge_patch;
use crate::api_server::object::Object;
use crate::api_server::resources::{self, Resource};
use crate::api_server::store::{Objects, Store, owners as owners_of};
use crate::clock;
use crate::convergence;
use crate::replicas::Replicas;
use crate::schedule::action::{Action, Actor};
use crate::webhook_replicas::WebhookReplicas;
use crate::world::owners::kind::is_bindable;
use crate::world::replacements::template;
use crate::world::targets::{TargetKind, requests, target_name, without_sidecar};
use crate::world::{World, quotas, rivals, writer};

const PAUSED: &str = "asya.sh/paused";

/// Executes an action.
pub fn act(world: &World, replicas: &Replicas, webhooks: &WebhookReplicas, action: &Action) {
    world.trace.add("ACTION", action);
    if owners::act(world, action) {
        return;
    }
    match action {
        Action::Create(actor, spec) => {
            let mut spec = spec.clone();
            let mut server = world.server.lock();
            // Adopt a workload that outlived an earlier actor with this name.
            let is_left = |resource| server.store.get(&id(resource, actor)).is_some();
            if is_left(&resources::DEPLOYMENTS) || is_left(&resources::STATEFUL_SETS) {
                spec["adoptionPolicy"] = "IfUnowned".into();
            }
            let object = json!({"metadata": {}, "spec": spec});
            let _ = server
                .store
                .create(&id(&resources::ACTORS, actor), object, &writer("user"));
        }
        Action::Update(actor, patch) => update(world, &id(&resources::ACTORS, actor), |object| {
            merge_patch(&mut object["spec"], patch);
        }),
        Action::Pause(actor) => set_paused(world, &id(&resources::ACTORS, actor), true),
        Action::Resume(actor) => set_paused(world, &id(&resources::ACTORS, actor), false),
        Action::Delete(actor) => delete(world, &id(&resources::ACTORS, actor)),
        Action::Orphan(actor) => orphan(world, &id(&resources::ACTORS, actor)),
        Action::Publish(actor, messages) => {
            if let Some(host) = host_of(world, actor)
                && let Some(broker) = world.brokers.lock().get_mut(&host)
            {
                broker.publish(&queue(actor), *messages);
                world.messages.notify_one();
            }
        }
        Action::CreateTarget(actor, kind, replicas) => {
            let id = target(*kind, actor);
            let object = kind.object(&id.name, *replicas, 1);
            let mut server = world.server.lock();
            let _ = server.store.create(&id, object, &writer("user"));
        }
        Action::ChangeTarget(actor, kind, version) => {
            update(world, &target(*kind, actor), |object| {
                let containers = &mut object["spec"]["template"]["spec"]["containers"];
                containers[0]["image"] = format!("model:{version}").into();
            });
        }
        Action::ScaleTarget(actor, kind, replicas) => {
            let scaled = Id::new(&resources::SCALED_OBJECTS, actor.0, actor.1);
            if world.server.lock().store.get(&scaled).is_none() {
                update(world, &target(*kind, actor), |object| {
                    object["spec"]["replicas"] = (*replicas).into();
                });
            }
        }
        Action::DeleteTarget(actor, kind) => delete(world, &target(*kind, actor)),
        Action::DeleteChild(actor, kind) => {
            let (resource, name): (&'static Resource, &str) = match *kind {
                "StatefulSet" => (&resources::STATEFUL_SETS, actor.1),
                "ScaledObject" => (&resources::SCALED_OBJECTS, actor.1),
                "ConfigMap" => (&resources::CONFIG_MAPS, "asya-runtime"),
                _ => (&resources::DEPLOYMENTS, actor.1),
            };
            delete(world, &Id::new(resource, actor.0, name));
        }
        Action::ChangeChild(actor) => {
            update(world, &id(&resources::DEPLOYMENTS, actor), |object| {
                object["spec"]["template"]["spec"]["containers"][0]["image"] =
                    "changed:by-hand".into();
            });
        }
        Action::DeleteQueue(actor) => {
            if let Some(host) = host_of(world, actor)
                && let Some(broker) = world.brokers.lock().get_mut(&host)
            {
                let mut random = world.seed.rng_for(("lost", actor, clock::elapsed()));
                broker.lose(&queue(actor), &mut random);
            }
        }
        Action::Crash(replica, calls) => replicas.current(*replica).crash_after(*calls),
        Action::Stop(replica) => replicas.current(*replica).stop.cancel(),
        Action::Partition(replica, time) => replicas.current(*replica).cut(Instant::now() + *time),
        Action::CrashWebhook(replica, calls) => webhooks.current(*replica).crash_after(*calls),
        Action::CutWebhook(replica, time) => {
            webhooks.current(*replica).cut(Instant::now() + *time);
        }
        Action::Compact => world.server.lock().store.compact(),
        Action::UninstallKeda { .. }
        | Action::InstallKeda
        | Action::CreateHpa(_)
        | Action::DeleteHpa(_)
        | Action::SetQuota(..)
        | Action::FillQuota(..)
        | Action::RequestResources(..)
        | Action::DeletePod(..)
        | Action::DeleteQuota(_)
        | Action::SetClock(_) => act_on_cluster(world, action),
        // Handled above.
        Action::DeleteWorkload(..)
        | Action::CrashOwner(..)
        | Action::CutOwner(..)
        | Action::Forbid(_)
        | Action::Allow(_) => {}
    }
}

/// Executes an action on the cluster, or one that quotas decide about.
fn act_on_cluster(world: &World, action: &Action) {
    match action {
        Action::UninstallKeda { stops_first } => {
            let mut server = world.server.lock();
            let mut keda = world.keda.lock();
            keda.uninstall(&mut server.store, *stops_first);
        }
        Action::InstallKeda => {
            world.keda.lock().install();
            world.messages.notify_one();
        }
        Action::CreateHpa(actor) => {
            let mut server = world.server.lock();
            if let Some(workload) = workload_of(&server.store, actor) {
                rivals::create(&mut server.store, &workload);
            }
        }
        Action::DeleteHpa(actor) => {
            let mut server = world.server.lock();
            for name in [actor.1.to_owned(), target_name(actor.1)] {
                rivals::delete(&mut server.store, actor.0, &name);
            }
        }
        Action::SetQuota(namespace, limited, room) => {
            quotas::set(&mut world.server.lock().store, namespace, *limited, *room);
        }
        Action::FillQuota(actor, kind, limited, pods, rest) => {
            let mut server = world.server.lock();
            if let Some(workload) = bound_workload(server.store.objects(), *kind, actor) {
                let pod = without_sidecar(template(&workload));
                let room = i64::from(*pods) * limited.of_pod(&pod).unwrap_or_default() + rest;
                quotas::set(&mut server.store, actor.0, *limited, room);
            }
        }
        Action::DeleteQuota(namespace) => {
            quotas::remove(&mut world.server.lock().store, namespace);
        }
        Action::RequestResources(actor, kind, cpu, memory) => {
            update(world, &target(*kind, actor), |object| {
                let containers = &mut object["spec"]["template"]["spec"]["containers"];
                containers[0]["resources"] = requests(*cpu, *memory);
            });
        }
        Action::DeletePod(actor, kind, number) => delete_pod(world, *kind, actor, *number),
        Action::SetClock(seconds) => clock::set_error(*seconds),
        _ => {}
    }
}

/// The object that creates the pods of an actor's target.
fn bound_workload(objects: &Objects, kind: TargetKind, actor: &Actor) -> Option<Arc<Object>> {
    let target = json!({"kind": kind.resource().kind, "name": target_name(actor.1)});
    convergence::owners::workload(objects, actor.0, &target)
}

fn delete_pod(world: &World, kind: TargetKind, actor: &Actor, number: u8) {
    let mut server = world.server.lock();
    let store = &mut server.store;
    let Some(workload) = bound_workload(store.objects(), kind, actor) else {
        return;
    };
    let uid = &workload["metadata"]["uid"];
    let pods = store.all(&resources::PODS).filter(|(_, pod)| {
        is_bindable(pod)
            && owners_of(pod).any(|owner| owner["uid"] == *uid)
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    let pods: Vec<Id> = pods.map(|(id, _)| id.clone()).collect();
    if let Some(pod) = pods.get(usize::from(number) % pods.len().max(1)) {
        let _ = store.delete(pod, &Deletion::default());
    }
}

fn set_paused(world: &World, actor: &Id, paused: bool) {
    update(world, actor, |object| {
        let value = paused.then_some("true");
        let annotations = json!({"annotations": {PAUSED: value}});
        merge_patch(&mut object["metadata"], &annotations);
    });
}

/// Unpauses all actors.
pub fn resume_all(world: &World) {
    let paused: Vec<Id> = {
        let server = world.server.lock();
        let actors = server.store.all(&resources::ACTORS);
        let paused = actors.filter(|(_, it)| it["metadata"]["annotations"][PAUSED].is_string());
        paused.map(|(id, _)| id.clone()).collect()
    };
    for id in paused {
        set_paused(world, &id, false);
    }
}

/// Deletes all actors, and empties the queues that would block their deletion.
pub fn delete_all(world: &World) {
    for broker in world.brokers.lock().values_mut() {
        for queue in broker.names() {
            broker.consume(&queue);
        }
    }
    let actors: Vec<Id> = {
        let server = world.server.lock();
        server
            .store
            .all(&resources::ACTORS)
            .map(|(id, _)| id.clone())
            .collect()
    };
    for id in actors {
        world.trace.add("ACTION", format_args!("delete {id}"));
        delete(world, &id);
    }
}

/// How long a run may take to converge.
pub const CONVERGENCE_TIMEOUT: Duration = Duration::from_mins(12);

fn id(resource: &'static Resource, actor: &Actor) -> Id {
    Id::new(resource, actor.0, actor.1)
}

/// The workload of an actor, its own or its target, if both actor and workload exist.
fn workload_of(store: &Store, actor: &Actor) -> Option<Id> {
    let actor = store.get(&id(&resources::ACTORS, actor))?;
    let workload = convergence::scaling::workload_of(&actor);
    store.get(&workload).map(|_| workload)
}

fn target(kind: TargetKind, actor: &Actor) -> Id {
    Id::new(kind.resource(), actor.0, &target_name(actor.1))
}

fn queue(actor: &Actor) -> String {
    format!("asya-{}", actor.1)
}

fn host_of(world: &World, actor: &Actor) -> Option<String> {
    let object = world
        .server
        .lock()
        .store
        .get(&id(&resources::ACTORS, actor))?;
    object["spec"]["transport"].as_str().map(str::to_owned)
}

fn delete(world: &World, id: &Id) {
    let _ = world.server.lock().store.delete(id, &Deletion::default());
}

/// A user deletes an actor with propagation policy Orphan, unless it is already being deleted.
fn orphan(world: &World, id: &Id) {
    let mut server = world.server.lock();
    let Some(live) = server.store.get(id) else {
        return;
    };
    let metadata = &live["metadata"];
    if metadata["deletionTimestamp"].is_null() {
        let inventory = live["status"]["inventory"].as_array();
        let has_object = |resource| {
            let child = Id::new(resource, &id.namespace, &id.name);
            let object = server.store.get(&child)?;
            let uid = object["metadata"]["uid"].clone();
            let mut recorded = inventory.into_iter().flatten();
            recorded.any(|it| it["uid"] == uid).then_some(())
        };
        // Without a workload, only the garbage collector's finalizer says that the queue is kept, and the operator may
        // be down until it is gone.
        world.note_kept_queue(id);
        let workloads = [&resources::DEPLOYMENTS, &resources::STATEFUL_SETS];
        if workloads.into_iter().any(|it| has_object(it).is_some()) {
            world.note_orphaned(id, metadata["uid"].as_str().unwrap_or_default());
        }
        let deletion = Deletion {
            propagation: Some("Orphan".to_owned()),
            ..Deletion::default()
        };
        let _ = server.store.delete(id, &deletion);
    }
}

/// A user updates an object, if it exists.
pub fn update(world: &World, id: &Id, change: impl FnOnce(&mut Value)) {
    let mut server = world.server.lock();
    let Some(live) = server.store.get(id) else {
        return;
    };
    let mut object = live.to_value();
    change(&mut object);
    let _ = server.store.update(id, object, &writer("user"));
}
