//! Tree of owner references in namespaces with bindings: objects of watched kinds that have a controller owner (RES-2).

use std::collections::{BTreeSet, HashMap, HashSet};

use parking_lot::Mutex;

use super::ObjectId;
use super::kinds::Kind;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{ForeignRecord, Record};

/// Maximum depth of dependents below a target.
const MAX_DEPTH: usize = 4;

/// Objects by their owner's uid. Entries are small, because a namespace may have thousands of objects that no binding
/// uses.
#[derive(Debug, Default)]
pub(super) struct Tree {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    nodes: HashMap<ObjectId, Node>,
    by_uid: HashMap<Box<str>, ObjectId>,
    by_owner: HashMap<Box<str>, BTreeSet<ObjectId>>,
    /// Scopes in which the first list of a kind is complete.
    synced: HashSet<(Kind, WatchScope)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    uid: Box<str>,
    owner: Box<str>,
    change_hash: u64,
    deleting: bool,
}

impl Tree {
    /// Stores an observed object. If its relevant fields changed, returns the uids of all its known owners, nearest
    /// first, before and after the change.
    pub(super) fn apply(&self, object: &ObjectId, record: &ForeignRecord) -> Vec<Box<str>> {
        let metadata = record.metadata();
        let node = metadata.controller.as_ref().map(|owner| Node {
            uid: metadata.uid.clone(),
            owner: owner.uid.clone(),
            change_hash: record.change_hash,
            deleting: metadata.deleting,
        });
        let mut inner = self.inner.lock();
        if inner.nodes.get(object) == node.as_ref() {
            return Vec::new();
        }
        let mut owners = inner.remove(object);
        if let Some(node) = node {
            owners.extend(inner.put(object, node));
        }
        owners
    }

    /// Removes a deleted object. Returns the uids of its owners, as [`Tree::apply`] does.
    pub(super) fn remove(&self, object: &ObjectId) -> Vec<Box<str>> {
        self.inner.lock().remove(object)
    }

    /// Descendants of the object with this uid that are of one of these kinds, at most [`MAX_DEPTH`] levels down.
    pub(super) fn descendants(&self, uid: &str, kinds: &[Kind]) -> Vec<ObjectId> {
        let inner = self.inner.lock();
        let mut descendants = BTreeSet::new();
        let mut level: Vec<&str> = vec![uid];
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for uid in level {
                for object in inner.by_owner.get(uid).into_iter().flatten() {
                    if kinds.contains(&object.kind) && descendants.insert(object.clone()) {
                        next.extend(inner.nodes.get(object).map(|node| &*node.uid));
                    }
                }
            }
            level = next;
        }
        descendants.into_iter().collect()
    }

    pub(super) fn of_kind(&self, kind: &Kind, scope: &WatchScope) -> Vec<ObjectId> {
        let inner = self.inner.lock();
        let in_scope = inner
            .nodes
            .keys()
            .filter(|object| object.is_in(kind, scope));
        in_scope.cloned().collect()
    }

    /// Marks the list of a kind as complete. Returns whether it is the first one.
    pub(super) fn mark_synced(&self, kind: &Kind, scope: &WatchScope) -> bool {
        self.inner
            .lock()
            .synced
            .insert((kind.clone(), scope.clone()))
    }

    /// Drops the objects of a watch that has ended, unless another one still covers them.
    pub(super) fn forget(&self, kind: &Kind, scope: &WatchScope) {
        let mut inner = self.inner.lock();
        inner.synced.remove(&(kind.clone(), scope.clone()));
        let covered =
            |namespace: &WatchScope| inner.synced.contains(&(kind.clone(), namespace.clone()));
        if covered(&WatchScope::Cluster) {
            return;
        }
        let dropped: Vec<_> = inner
            .nodes
            .keys()
            .filter(|object| object.is_in(kind, scope))
            .filter(|object| !covered(&WatchScope::Namespace(object.key.namespace.clone())))
            .cloned()
            .collect();
        for object in dropped {
            inner.remove(&object);
        }
    }

    /// Whether all objects of a kind in the namespace are known.
    pub(super) fn is_synced(&self, kind: &Kind, namespace: &std::sync::Arc<str>) -> bool {
        let inner = self.inner.lock();
        [
            WatchScope::Cluster,
            WatchScope::Namespace(namespace.clone()),
        ]
        .into_iter()
        .any(|scope| inner.synced.contains(&(kind.clone(), scope)))
    }

    /// Number of stored objects.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().nodes.len()
    }
}

impl Inner {
    fn put(&mut self, object: &ObjectId, node: Node) -> Vec<Box<str>> {
        let owners = self.above(&node);
        self.by_uid.insert(node.uid.clone(), object.clone());
        let siblings = self.by_owner.entry(node.owner.clone()).or_default();
        siblings.insert(object.clone());
        self.nodes.insert(object.clone(), node);
        owners
    }

    fn remove(&mut self, object: &ObjectId) -> Vec<Box<str>> {
        let Some(node) = self.nodes.remove(object) else {
            return Vec::new();
        };
        let owners = self.above(&node);
        self.by_uid.remove(&node.uid);
        if let Some(siblings) = self.by_owner.get_mut(&node.owner) {
            siblings.remove(object);
            if siblings.is_empty() {
                self.by_owner.remove(&node.owner);
            }
        }
        owners
    }

    fn above(&self, node: &Node) -> Vec<Box<str>> {
        let mut owners = vec![node.owner.clone()];
        while owners.len() < MAX_DEPTH
            && let Some(next) = owners
                .last()
                .and_then(|uid| self.by_uid.get(uid))
                .and_then(|object| self.nodes.get(object))
        {
            owners.push(next.owner.clone());
        }
        owners
    }
}
