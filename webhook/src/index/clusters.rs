//! `RayCluster`s and their owners: the pods of a `RayService` do not refer to it, so reviews look up which clusters it
//! owns (SAFE-30, SAFE-31).

use std::collections::{HashMap, HashSet};

use asya_shared::key::Key;
use asya_shared::resolve::{Intermediates, ObjectRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// All clusters that the watch has returned.
#[derive(Debug, Default)]
pub(super) struct Clusters {
    by_namespace: HashMap<Box<str>, Intermediates>,
    /// Clusters that a running list has not returned yet.
    relist: Option<HashSet<Key>>,
}

impl Clusters {
    /// The clusters of a namespace, with their owners.
    pub(super) fn of(&self, namespace: &str) -> Option<&Intermediates> {
        self.by_namespace.get(namespace)
    }

    /// Adds or updates a cluster; returns whether its owner is new.
    pub(super) fn show(&mut self, key: &Key, owner: Option<ObjectRef>) -> bool {
        if let Some(missing) = &mut self.relist {
            missing.remove(key);
        }
        let of_namespace = self.by_namespace.entry((*key.namespace).into());
        let of_namespace = of_namespace.or_default();
        if of_namespace.get(&*key.name) == Some(&owner) {
            return false;
        }
        of_namespace.insert((*key.name).into(), owner);
        true
    }

    pub(super) fn removed(&mut self, key: &Key) {
        if let Some(of_namespace) = self.by_namespace.get_mut(&*key.namespace) {
            of_namespace.remove(&*key.name);
            if of_namespace.is_empty() {
                self.by_namespace.remove(&*key.namespace);
            }
        }
    }

    /// Marks the start of a list; [`Clusters::relisted`] removes the clusters that the list did not return.
    pub(super) fn relisting(&mut self) {
        self.relist = Some(self.keys());
    }

    /// Marks the end of a list; returns the namespaces of the clusters that it did not return.
    pub(super) fn relisted(&mut self) -> HashSet<Box<str>> {
        let gone = self.relist.clone().unwrap_or_default();
        self.drop_all(&gone)
    }

    /// Forgets all clusters when the watch stops; returns their namespaces.
    pub(super) fn forget(&mut self) -> HashSet<Box<str>> {
        let gone = self.keys();
        self.drop_all(&gone)
    }

    fn keys(&self) -> HashSet<Key> {
        let all = self.by_namespace.iter();
        let keys = all
            .flat_map(|(namespace, of_it)| of_it.keys().map(move |name| Key::new(namespace, name)));
        keys.collect()
    }

    fn drop_all(&mut self, gone: &HashSet<Key>) -> HashSet<Box<str>> {
        self.relist = None;
        for key in gone {
            self.removed(key);
        }
        gone.iter().map(|key| (*key.namespace).into()).collect()
    }
}

/// The owner in these metadata that has `controller: true`.
pub(super) fn owner_of(metadata: &ObjectMeta) -> Option<ObjectRef> {
    let owners = metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|it| it.controller == Some(true))?;
    Some(ObjectRef {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: Some(owner.uid.clone()),
    })
}

#[cfg(test)]
mod tests;
