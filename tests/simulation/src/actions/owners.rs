//! User actions on targets that have owners.

use serde_json::Value;
use tokio::time::Instant;

use crate::actions::update;
use crate::api_server::deletion::Deletion;
use crate::api_server::id::Id;
use crate::api_server::resources;
use crate::schedule::action::{Action, Actor};
use crate::world::owners::OwnerKind;
use crate::world::targets::{TargetKind, requests, target_name};
use crate::world::{World, writer};

/// Executes an action on an owner or on a target that has one. Returns false if it is another kind of action.
pub fn act(world: &World, action: &Action) -> bool {
    let target =
        |owner: OwnerKind, actor: &Actor| Id::new(owner.target(), actor.0, &target_name(actor.1));
    match action {
        Action::CreateTarget(actor, TargetKind::Owned(owner), replicas) => {
            create(world, *owner, &target(*owner, actor), *replicas);
        }
        Action::ChangeTarget(actor, TargetKind::Owned(owner), version) => {
            let id = target(*owner, actor);
            edit(world, *owner, &id, |object| owner.change(object, *version));
        }
        Action::ScaleTarget(actor, TargetKind::Owned(owner), replicas) => {
            set_replicas(world, *owner, &target(*owner, actor), *replicas);
        }
        Action::DeleteTarget(actor, TargetKind::Owned(owner)) => {
            delete(world, *owner, &target(*owner, actor));
        }
        Action::RequestResources(actor, TargetKind::Owned(owner), cpu, memory) => {
            let id = target(*owner, actor);
            edit(world, *owner, &id, |object| {
                owner.request(object, &requests(*cpu, *memory));
            });
        }
        Action::DeleteWorkload(actor, owner) => {
            if let Some(id) = owner.workload(&target(*owner, actor)) {
                let _ = world.server.lock().store.delete(&id, &Deletion::default());
            }
        }
        Action::Forbid(owner) => {
            world.forbidden.lock().insert(owner.target().plural);
        }
        Action::Allow(owner) => {
            world.forbidden.lock().remove(owner.target().plural);
        }
        Action::CrashOwner(owner, calls) => {
            if let Some(process) = world.owners.current(*owner) {
                process.crash_after(*calls);
            }
        }
        Action::CutOwner(owner, time) => {
            if let Some(process) = world.owners.current(*owner) {
                process.cut(Instant::now() + *time);
            }
        }
        _ => return false,
    }
    true
}

/// A user creates a target, unless it exists.
fn create(world: &World, owner: OwnerKind, id: &Id, replicas: u8) {
    let object = owner.object(&id.name, replicas, 1);
    if owner.is_gitops() {
        let mut manifests = world.owners.manifests.lock();
        manifests.entry(id.clone()).or_insert(object);
        return world.owners.committed.notify_waiters();
    }
    let _ = world
        .server
        .lock()
        .store
        .create(id, object, &writer("user"));
}

/// A user changes the number of pods.
fn set_replicas(world: &World, owner: OwnerKind, id: &Id, replicas: u8) {
    edit(world, owner, id, |object| {
        owner.set_replicas(object, replicas);
    });
    // For these owners, the user scales the workload itself, unless the queue does.
    let scaled = match owner {
        OwnerKind::Kaito | OwnerKind::Argo => owner.workload(id),
        OwnerKind::Kserve | OwnerKind::Ray | OwnerKind::Replace => None,
    };
    let is_scaled = |id: &Id| {
        let server = world.server.lock();
        let mut all = server.store.all(&resources::SCALED_OBJECTS);
        all.any(|(_, it)| it["spec"]["scaleTargetRef"]["name"] == *id.name)
    };
    if let Some(id) = scaled.filter(|id| !is_scaled(id)) {
        update(world, &id, |object| {
            object["spec"]["replicas"] = replicas.into();
        });
    }
}

/// A user deletes a target.
fn delete(world: &World, owner: OwnerKind, id: &Id) {
    if owner.is_gitops() {
        world.owners.manifests.lock().remove(id);
        world.owners.committed.notify_waiters();
    } else {
        let _ = world.server.lock().store.delete(id, &Deletion::default());
    }
}

fn edit(world: &World, owner: OwnerKind, id: &Id, change: impl FnOnce(&mut Value)) {
    if !owner.is_gitops() {
        return update(world, id, change);
    }
    if let Some(manifest) = world.owners.manifests.lock().get_mut(id) {
        change(manifest);
        world.owners.committed.notify_waiters();
    }
}
