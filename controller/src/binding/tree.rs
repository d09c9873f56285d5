//! What belongs to whom in namespaces with bindings: objects of watched kinds that have a controller owner (RES-2).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Object;
use super::kinds::Kind;
use crate::cluster::store::Scope;
use crate::record::{ForeignRecord, Record};

/// How far below a target what belongs to it may be.
const DEEPEST: usize = 4;

/// Objects by their owners' uids. Kept small: a namespace may have thousands that concern nobody.
#[derive(Debug, Default)]
pub(super) struct Tree {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    nodes: HashMap<Object, Node>,
    by_uid: HashMap<Box<str>, Object>,
    by_owner: HashMap<Box<str>, BTreeSet<Object>>,
    /// Where every object of a kind has been shown.
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
    /// Takes what a watch shows. Answers the uids of all above it, nearest first, as far as they are known, before and
    /// after; nothing where nobody needs to look.
    pub(super) fn show(&self, object: &Object, record: &ForeignRecord) -> Vec<Box<str>> {
        let metadata = record.metadata();
        let node = metadata.controller.as_ref().map(|owner| Node {
            uid: metadata.uid.clone(),
            owner: owner.uid.clone(),
            shape: record.shape,
            deleting: metadata.deleting,
        });
        let mut inner = self.lock();
        if inner.nodes.get(object) == node.as_ref() {
            return Vec::new();
        }
        let mut above = inner.remove(object);
        if let Some(node) = node {
            above.extend(inner.put(object, node));
        }
        above
    }

    /// As [`Tree::show`], of an object that is gone.
    pub(super) fn gone(&self, object: &Object) -> Vec<Box<str>> {
        self.lock().remove(object)
    }

    /// Objects of these kinds below the object with this uid, down to four levels.
    pub(super) fn below(&self, uid: &str, kinds: &[Kind]) -> Vec<Object> {
        let inner = self.lock();
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

    /// Objects of a kind that are kept of a place.
    pub(super) fn of_kind(&self, kind: &Kind, scope: &Scope) -> Vec<Object> {
        let inner = self.lock();
        let inside = inner.nodes.keys().filter(|it| it.is_in(kind, scope));
        inside.cloned().collect()
    }

    /// Every object of a kind has been shown. Answers whether it is the first time.
    pub(super) fn listed(&self, kind: &Kind, scope: &Scope) -> bool {
        self.lock().listed.insert((kind.clone(), scope.clone()))
    }

    /// Nobody watches the kind there any more.
    pub(super) fn forget(&self, kind: &Kind, scope: &Scope) {
        let mut inner = self.lock();
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

    /// Whether all objects of a kind are known there.
    pub(super) fn is_listed(&self, kind: &Kind, namespace: &std::sync::Arc<str>) -> bool {
        let inner = self.lock();
        [None, Some(namespace.clone())]
            .into_iter()
            .any(|scope| inner.listed.contains(&(kind.clone(), scope)))
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.lock().nodes.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
