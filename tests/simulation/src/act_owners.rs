//! What users do with targets that have owners.

use serde_json::Value;

use crate::api_server::resources;
use crate::api_server::store::{Deletion, Id};
use crate::world::owners::OwnerKind;
use crate::world::{World, writer};

/// A user creates a target, unless it exists.
pub fn create(world: &World, owner: OwnerKind, id: &Id, replicas: u8) {
    let object = owner.object(&id.name, replicas, 1);
    if owner.syncs() {
        let mut manifests = world.owners.manifests.lock();
        manifests.entry(id.clone()).or_insert(object);
        return world.owners.committed.notify_one();
    }
    let _ = world
        .server
        .lock()
        .store
        .create(id, object, &writer("user"));
}

/// A user changes a target.
pub fn change(world: &World, owner: OwnerKind, id: &Id, version: u8) {
    edit(world, owner, id, |object| owner.change(object, version));
}

/// A user wants another number of pods.
pub fn set_replicas(world: &World, owner: OwnerKind, id: &Id, replicas: u8) {
    edit(world, owner, id, |object| {
        owner.set_replicas(object, replicas)
    });
    // Of these the workload itself is scaled, unless the queue does.
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
pub fn delete(world: &World, owner: OwnerKind, id: &Id) {
    if owner.syncs() {
        world.owners.manifests.lock().remove(id);
        world.owners.committed.notify_one();
    } else {
        let _ = world.server.lock().store.delete(id, &Deletion::default());
    }
}

/// Somebody deletes what the owner has made of a target.
pub fn delete_workload(world: &World, owner: OwnerKind, id: &Id) {
    if let Some(id) = owner.workload(id) {
        let _ = world.server.lock().store.delete(&id, &Deletion::default());
    }
}

fn edit(world: &World, owner: OwnerKind, id: &Id, change: impl FnOnce(&mut Value)) {
    if !owner.syncs() {
        return update(world, id, change);
    }
    if let Some(manifest) = world.owners.manifests.lock().get_mut(id) {
        change(manifest);
        world.owners.committed.notify_one();
    }
}

fn update(world: &World, id: &Id, change: impl FnOnce(&mut Value)) {
    let mut server = world.server.lock();
    let Some(live) = server.store.get(id) else {
        return;
    };
    let mut object = (*live).clone();
    change(&mut object);
    let _ = server.store.update(id, object, &writer("user"));
}
