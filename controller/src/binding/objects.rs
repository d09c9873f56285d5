//! Watch sink for kinds that are bound or that affect how a target resolves (BIND-60).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::kinds::Kind;
use super::{Bindings, Object};
use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{Enqueue, ForeignRecord, Key, Projected, Record};

/// Keeps only bound objects, their owners, and objects with a controller owner.
pub struct ObjectWatch {
    bindings: Arc<Bindings>,
    kind: Kind,
    /// Objects that a running list has not shown yet.
    missing: Mutex<HashSet<Object>>,
}

impl ObjectWatch {
    pub fn new(bindings: &Arc<Bindings>, kind: &Kind) -> Self {
        Self {
            bindings: Arc::clone(bindings),
            kind: kind.clone(),
            missing: Mutex::default(),
        }
    }

    fn object(&self, key: &Key) -> Object {
        Object {
            kind: self.kind.clone(),
            key: key.clone(),
        }
    }

    /// Invalidates the targets with these uids after a dependent has changed. Returns the actors to enqueue.
    fn touched(&self, above: &[Box<str>]) -> Vec<Enqueue> {
        let bindings = &self.bindings;
        let mut concerned = Vec::new();
        for target in bindings.index.targets_with(above) {
            bindings.targets.touched(&target);
            concerned.extend(bindings.actors_of(&target));
        }
        concerned
    }

    fn gone(&self, object: &Object) -> Vec<Enqueue> {
        let bindings = &self.bindings;
        let above = bindings.tree.gone(object);
        let mut concerned = self.touched(&above);
        for target in bindings.index.targets_told_by(object) {
            let news = if target == *object {
                bindings.targets.gone(&target)
            } else {
                bindings.targets.touched(&target);
                true
            };
            if news {
                concerned.extend(bindings.actors_of(&target));
            }
        }
        concerned
    }
}

impl WatchSink<ForeignRecord> for ObjectWatch {
    fn what(&self) -> Option<Cow<'static, str>> {
        Some(self.kind.to_string().into())
    }

    fn relisting(&self, scope: &Scope) {
        let bindings = &self.bindings;
        let known = bindings.targets.of_kind(&self.kind, scope).into_iter();
        let below = bindings.tree.of_kind(&self.kind, scope);
        *self.missing.lock() = known.chain(below).collect();
    }

    fn show(&self, _: &Scope, seen: &Projected<ForeignRecord>) -> Vec<Enqueue> {
        let metadata = seen.record.metadata();
        let object = self.object(&metadata.key);
        self.missing.lock().remove(&object);
        let bindings = &self.bindings;
        let above = bindings.tree.show(&object, &seen.record);
        let mut concerned = if above.is_empty() {
            Vec::new()
        } else {
            self.touched(&above)
        };
        for target in bindings.index.targets_told_by(&object) {
            let version = metadata.resource_version;
            if bindings.targets.saw(&target, &object, version) {
                concerned.extend(bindings.actors_of(&target));
            }
        }
        concerned
    }

    fn removed(&self, _: &Scope, seen: &Projected<ForeignRecord>) -> Vec<Enqueue> {
        self.gone(&self.object(&seen.record.metadata().key))
    }

    /// After the first list, also returns the actors that waited for it.
    fn relisted(&self, scope: &Scope) -> Vec<Enqueue> {
        let missing = std::mem::take(&mut *self.missing.lock());
        let mut concerned: Vec<_> = missing.iter().flat_map(|it| self.gone(it)).collect();
        if self.bindings.tree.listed(&self.kind, scope) {
            let waiting = self.bindings.index.actors_told_by(&self.kind, scope);
            concerned.extend(waiting.into_iter().map(Enqueue::Actor));
        }
        concerned
    }

    fn unserved(&self, scope: &Scope) -> Vec<Enqueue> {
        self.relisting(scope);
        let missing = std::mem::take(&mut *self.missing.lock());
        let concerned = missing.iter().flat_map(|it| self.gone(it)).collect();
        self.bindings.tree.forget(&self.kind, scope);
        concerned
    }
}
