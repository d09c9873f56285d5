//! Watch sink for kinds that are bound or that affect how a target resolves (BIND-60).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::kinds::Kind;
use super::{Bindings, ObjectId};
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Enqueue, ForeignRecord, Key, Projected, Record};

/// Keeps only bound objects, their owners, and objects with a controller owner.
pub struct ObjectWatch {
    bindings: Arc<Bindings>,
    kind: Kind,
    /// Objects that the list in progress has not returned yet.
    missing: Mutex<HashSet<ObjectId>>,
}

impl ObjectWatch {
    pub fn new(bindings: &Arc<Bindings>, kind: &Kind) -> Self {
        Self {
            bindings: Arc::clone(bindings),
            kind: kind.clone(),
            missing: Mutex::default(),
        }
    }

    fn object(&self, key: &Key) -> ObjectId {
        ObjectId {
            kind: self.kind.clone(),
            key: key.clone(),
        }
    }

    /// Invalidates the targets with these uids after a dependent has changed. Returns the actors to enqueue.
    fn invalidate_targets(&self, uids: &[Box<str>]) -> Vec<Enqueue> {
        let bindings = &self.bindings;
        let mut affected = Vec::new();
        for target in bindings.index.targets_with(uids) {
            bindings.targets.invalidate(&target);
            affected.extend(bindings.actors_of(&target));
        }
        affected
    }

    fn object_deleted(&self, object: &ObjectId) -> Vec<Enqueue> {
        let bindings = &self.bindings;
        let owners = bindings.tree.remove(object);
        let mut affected = self.invalidate_targets(&owners);
        for target in bindings.index.targets_affected_by(object) {
            let changed = if target == *object {
                bindings.targets.mark_deleted(&target)
            } else {
                bindings.targets.invalidate(&target);
                true
            };
            if changed {
                affected.extend(bindings.actors_of(&target));
            }
        }
        affected
    }
}

impl WatchSink<ForeignRecord> for ObjectWatch {
    fn kind_name(&self) -> Option<Cow<'static, str>> {
        Some(self.kind.to_string().into())
    }

    fn init(&self, scope: &WatchScope) {
        let bindings = &self.bindings;
        let known = bindings.targets.of_kind(&self.kind, scope).into_iter();
        let dependents = bindings.tree.of_kind(&self.kind, scope);
        *self.missing.lock() = known.chain(dependents).collect();
    }

    fn apply(&self, _: &WatchScope, projected: &Projected<ForeignRecord>) -> Vec<Enqueue> {
        let metadata = projected.record.metadata();
        let object = self.object(&metadata.key);
        self.missing.lock().remove(&object);
        let bindings = &self.bindings;
        let owners = bindings.tree.apply(&object, &projected.record);
        let mut affected = if owners.is_empty() {
            Vec::new()
        } else {
            self.invalidate_targets(&owners)
        };
        for target in bindings.index.targets_affected_by(&object) {
            let version = metadata.resource_version;
            if bindings.targets.observe_version(&target, &object, version) {
                affected.extend(bindings.actors_of(&target));
            }
        }
        affected
    }

    fn delete(&self, _: &WatchScope, projected: &Projected<ForeignRecord>) -> Vec<Enqueue> {
        self.object_deleted(&self.object(&projected.record.metadata().key))
    }

    /// After the first list, also returns the actors that waited for it.
    fn init_done(&self, scope: &WatchScope) -> Vec<Enqueue> {
        let missing = std::mem::take(&mut *self.missing.lock());
        let mut affected: Vec<_> = missing
            .iter()
            .flat_map(|object| self.object_deleted(object))
            .collect();
        if self.bindings.tree.mark_synced(&self.kind, scope) {
            let waiting = self
                .bindings
                .index
                .actors_affected_by_kind(&self.kind, scope);
            affected.extend(waiting.into_iter().map(Enqueue::Actor));
        }
        affected
    }

    fn kind_removed(&self, scope: &WatchScope) -> Vec<Enqueue> {
        self.init(scope);
        let missing = std::mem::take(&mut *self.missing.lock());
        let affected = missing
            .iter()
            .flat_map(|object| self.object_deleted(object))
            .collect();
        self.bindings.tree.forget(&self.kind, scope);
        affected
    }
}
