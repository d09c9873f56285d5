//! `RayCluster`s and their owners: the pods of a `RayService` do not refer to it, so reviews look up which clusters it
//! owns (SAFE-30, SAFE-31).

use std::collections::{HashMap, HashSet};

use asya_shared::key::Key;
use asya_shared::resolve::{IntermediateOwners, ObjectRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// All clusters that the watch has observed.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    by_namespace: HashMap<Box<str>, IntermediateOwners>,
    /// Clusters that the list in progress has not returned yet.
    not_yet_listed: Option<HashSet<Key>>,
}

impl Clusters {
    /// The clusters of a namespace, with their owners.
    pub(super) fn of(&self, namespace: &str) -> Option<&IntermediateOwners> {
        self.by_namespace.get(namespace)
    }

    /// Adds or updates a cluster; returns whether its owner changed.
    pub(super) fn apply(&mut self, key: &Key, owner: Option<ObjectRef>) -> bool {
        if let Some(missing) = &mut self.not_yet_listed {
            missing.remove(key);
        }
        let clusters = self.by_namespace.entry((*key.namespace).into());
        let clusters = clusters.or_default();
        if clusters.get(&*key.name) == Some(&owner) {
            return false;
        }
        clusters.insert((*key.name).into(), owner);
        true
    }

    pub(super) fn delete(&mut self, key: &Key) {
        if let Some(clusters) = self.by_namespace.get_mut(&*key.namespace) {
            clusters.remove(&*key.name);
            if clusters.is_empty() {
                self.by_namespace.remove(&*key.namespace);
            }
        }
    }

    /// Marks the start of a list; [`Clusters::init_done`] removes the clusters that the list did not return.
    pub(super) fn init(&mut self) {
        self.not_yet_listed = Some(self.keys());
    }

    /// Marks the end of a list; returns the namespaces of the clusters that it did not return.
    pub(super) fn init_done(&mut self) -> HashSet<Box<str>> {
        let missing = self.not_yet_listed.clone().unwrap_or_default();
        self.remove_all(&missing)
    }

    /// Forgets all clusters when the watch stops; returns their namespaces.
    pub(super) fn clear(&mut self) -> HashSet<Box<str>> {
        let keys = self.keys();
        self.remove_all(&keys)
    }

    fn keys(&self) -> HashSet<Key> {
        let namespaces = self.by_namespace.iter();
        let keys = namespaces.flat_map(|(namespace, clusters)| {
            clusters.keys().map(move |name| Key::new(namespace, name))
        });
        keys.collect()
    }

    fn remove_all(&mut self, keys: &HashSet<Key>) -> HashSet<Box<str>> {
        self.not_yet_listed = None;
        for key in keys {
            self.delete(key);
        }
        keys.iter().map(|key| (*key.namespace).into()).collect()
    }
}

/// The controller owner in this metadata.
pub(super) fn owner_of(metadata: &ObjectMeta) -> Option<ObjectRef> {
    let owners = metadata.owner_references.iter().flatten();
    let owner = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))?;
    Some(ObjectRef {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: Some(owner.uid.clone()),
    })
}

#[cfg(test)]
mod tests;
