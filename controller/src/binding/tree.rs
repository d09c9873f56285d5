//! Tree of owner references in namespaces with bindings: objects of watched kinds that have a controller owner (RES-2).

use std::collections::{BTreeSet, HashMap, HashSet};

use parking_lot::Mutex;

use super::Object;
use super::kinds::Kind;
use crate::cluster::store::Scope;
use crate::record::{ForeignRecord, Record};

/// Maximum depth of dependents below a target.
const DEEPEST: usize = 4;

/// Objects by their owner's uid. Entries are small, because a namespace may have thousands of objects that no binding
/// uses.
#[derive(Debug, Default)]
pub(super) struct Tree {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    nodes: HashMap<Object, Node>,
    by_uid: HashMap<Box<str>, Object>,
    by_owner: HashMap<Box<str>, BTreeSet<Object>>,
    /// Scopes in which the first list of a kind is complete.
    listed: HashSet<(Kind, Scope)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Node {
    uid: Box<str>,
    owner: Box<str>,
    shape: u64,
    deleting: bool,
}

impl Tree {
    /// Stores an object that a watch has shown. If its relevant fields changed, returns the uids of all known owners
    /// above it, nearest first, before and after the change.
    pub(super) fn show(&self, object: &Object, record: &ForeignRecord) -> Vec<Box<str>> {
        let metadata = record.metadata();
        let node = metadata.controller.as_ref().map(|owner| Node {
            uid: metadata.uid.clone(),
            owner: owner.uid.clone(),
            shape: record.shape,
            deleting: metadata.deleting,
        });
        let mut inner = self.inner.lock();
        if inner.nodes.get(object) == node.as_ref() {
            return Vec::new();
        }
        let mut above = inner.remove(object);
        if let Some(node) = node {
            above.extend(inner.put(object, node));
        }
        above
    }

    /// Removes a deleted object. Returns the uids above it, as [`Tree::show`] does.
    pub(super) fn gone(&self, object: &Object) -> Vec<Box<str>> {
        self.inner.lock().remove(object)
    }

    /// Objects of these kinds below the object with this uid, at most [`DEEPEST`] levels down.
    pub(super) fn below(&self, uid: &str, kinds: &[Kind]) -> Vec<Object> {
        let inner = self.inner.lock();
        let mut found = BTreeSet::new();
        let mut level: Vec<&str> = vec![uid];
        for _ in 0..DEEPEST {
            let mut next = Vec::new();
            for uid in level {
                for object in inner.by_owner.get(uid).into_iter().flatten() {
                    if kinds.contains(&object.kind) && found.insert(object.clone()) {
                        next.extend(inner.nodes.get(object).map(|node| &*node.uid));
                    }
                }
            }
            level = next;
        }
        found.into_iter().collect()
    }

    /// Stored objects of a kind in a scope.
    pub(super) fn of_kind(&self, kind: &Kind, scope: &Scope) -> Vec<Object> {
        let inner = self.inner.lock();
        let inside = inner.nodes.keys().filter(|it| it.is_in(kind, scope));
        inside.cloned().collect()
    }

    /// Marks the list of a kind as complete. Returns whether it is the first one.
    pub(super) fn listed(&self, kind: &Kind, scope: &Scope) -> bool {
        self.inner
            .lock()
            .listed
            .insert((kind.clone(), scope.clone()))
    }

    /// Drops the objects of a watch that has ended, unless another one still covers them.
    pub(super) fn forget(&self, kind: &Kind, scope: &Scope) {
        let mut inner = self.inner.lock();
        inner.listed.remove(&(kind.clone(), scope.clone()));
        let covered = |namespace: &Scope| inner.listed.contains(&(kind.clone(), namespace.clone()));
        let gone: Vec<_> = inner
            .nodes
            .keys()
            .filter(|it| it.is_in(kind, scope))
            .filter(|it| !covered(&None) && !covered(&Some(it.key.namespace.clone())))
            .cloned()
            .collect();
        for object in gone {
            inner.remove(&object);
        }
    }

    /// Whether all objects of a kind in the namespace are known.
    pub(super) fn is_listed(&self, kind: &Kind, namespace: &std::sync::Arc<str>) -> bool {
        let inner = self.inner.lock();
        [None, Some(namespace.clone())]
            .into_iter()
            .any(|scope| inner.listed.contains(&(kind.clone(), scope)))
    }

    /// Number of stored objects.
    pub(super) fn len(&self) -> usize {
        self.inner.lock().nodes.len()
    }
}

impl Inner {
    fn put(&mut self, object: &Object, node: Node) -> Vec<Box<str>> {
        let above = self.above(&node);
        self.by_uid.insert(node.uid.clone(), object.clone());
        let siblings = self.by_owner.entry(node.owner.clone()).or_default();
        siblings.insert(object.clone());
        self.nodes.insert(object.clone(), node);
        above
    }

    fn remove(&mut self, object: &Object) -> Vec<Box<str>> {
        let Some(node) = self.nodes.remove(object) else {
            return Vec::new();
        };
        let above = self.above(&node);
        self.by_uid.remove(&node.uid);
        if let Some(siblings) = self.by_owner.get_mut(&node.owner) {
            siblings.remove(object);
            if siblings.is_empty() {
                self.by_owner.remove(&node.owner);
            }
        }
        above
    }

    fn above(&self, node: &Node) -> Vec<Box<str>> {
        let mut above = vec![node.owner.clone()];
        while above.len() < DEEPEST
            && let Some(next) = above
                .last()
                .and_then(|uid| self.by_uid.get(uid))
                .and_then(|object| self.nodes.get(object))
        {
            above.push(next.owner.clone());
        }
        above
    }
}
