//! Cache of the objects that actors bind to. A target is read again only after a watch has observed a change (BIND-61).

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::resolve::Resolution;
use parking_lot::Mutex;

use super::ObjectId;
use super::kinds::{Kind, KindAvailability};
use crate::cluster::watch_scope::WatchScope;

/// A target as read and resolved.
#[derive(Debug)]
pub struct TargetSnapshot {
    pub resolution: Resolution,
    /// Desired replicas, if the target's workload sets them.
    pub replicas: Option<i32>,
    pub uid: Box<str>,
    pub spec_hash: Box<str>,
    /// The fields of its pod template that the operator owns (BIND-50).
    pub our_template_fields: Option<OurTemplateFields>,
    /// A related kind that the operator is not permitted to read.
    pub forbidden_kind: Option<ForbiddenKind>,
}

/// A kind that the operator is not permitted to read.
#[derive(Clone, Debug, PartialEq)]
pub struct ForbiddenKind {
    pub kind: Kind,
    /// The RBAC rule that permits it.
    pub missing_rule: Arc<str>,
}

/// The fields of a pod template that the operator owns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OurTemplateFields {
    /// Fingerprint of the owned fields.
    pub fingerprint: String,
    /// Uid of the actor whose sidecar the template holds, if it names one.
    pub actor: Option<Box<str>>,
}

impl OurTemplateFields {
    /// Whether the fields can belong to the actor with this uid.
    pub fn may_belong_to(&self, uid: &str) -> bool {
        self.actor.as_deref().is_none_or(|actor| actor == uid)
    }
}

/// Result of looking up a target.
#[derive(Clone, Debug)]
pub enum TargetState {
    Present(Arc<TargetSnapshot>),
    /// The target does not exist.
    NotFound,
    /// Its kind is not served or not readable.
    KindUnavailable(KindAvailability),
    /// The watches have not synced yet.
    NotSynced,
}

#[derive(Debug, Default)]
pub struct Targets {
    cached: Mutex<HashMap<ObjectId, CachedTarget>>,
}

#[derive(Debug, Default)]
struct CachedTarget {
    /// Number of changes observed so far. A read that started before the latest one is stale.
    revision: u64,
    found: Option<TargetState>,
    /// Resource versions of the objects that `found` was built from.
    versions: HashMap<ObjectId, u64>,
}

/// Either a cached result, or the revision at which to start a new read.
pub(super) enum CacheLookup {
    Hit(TargetState),
    Miss(u64),
}

impl Targets {
    pub(super) fn lookup(&self, target: &ObjectId) -> CacheLookup {
        let mut cached = self.cached.lock();
        let entry = cached.entry(target.clone()).or_default();
        match &entry.found {
            Some(state) => CacheLookup::Hit(state.clone()),
            None => CacheLookup::Miss(entry.revision),
        }
    }

    /// Caches the result of a read, unless a watch has observed a change since it started.
    pub(super) fn insert(
        &self,
        target: &ObjectId,
        revision: u64,
        state: TargetState,
        versions: HashMap<ObjectId, u64>,
    ) {
        if let Some(entry) = self.cached.lock().get_mut(target)
            && entry.revision == revision
        {
            entry.found = Some(state);
            entry.versions = versions;
        }
    }

    /// Number of cached targets.
    pub(super) fn len(&self) -> usize {
        self.cached.lock().len()
    }

    /// Drops targets that no actor binds anymore.
    pub(super) fn retain(&self, is_bound: impl Fn(&ObjectId) -> bool) {
        self.cached.lock().retain(|target, _| is_bound(target));
    }

    /// Handles a new version of the target or of one of its owners. Returns whether the cached result is stale.
    pub(super) fn observe_version(
        &self,
        target: &ObjectId,
        object: &ObjectId,
        version: u64,
    ) -> bool {
        let mut cached = self.cached.lock();
        let entry = cached.entry(target.clone()).or_default();
        if entry.found.is_some() && entry.versions.get(object) >= Some(&version) {
            return false;
        }
        entry.invalidate();
        true
    }

    /// Invalidates the cached result after a change of an object that the target consists of.
    pub(super) fn invalidate(&self, target: &ObjectId) {
        self.cached
            .lock()
            .entry(target.clone())
            .or_default()
            .invalidate();
    }

    /// Records that the target was deleted. Returns whether that was not known yet.
    pub(super) fn mark_deleted(&self, target: &ObjectId) -> bool {
        let mut cached = self.cached.lock();
        let entry = cached.entry(target.clone()).or_default();
        let previous = entry.found.take();
        entry.invalidate();
        entry.versions.clear();
        entry.found = Some(TargetState::NotFound);
        !matches!(previous, Some(TargetState::NotFound))
    }

    pub(super) fn of_kind(&self, kind: &Kind, scope: &WatchScope) -> Vec<ObjectId> {
        let cached = self.cached.lock();
        let versions = cached.values().flat_map(|it| it.versions.keys());
        let all = cached.keys().chain(versions);
        all.filter(|object| object.is_in(kind, scope))
            .cloned()
            .collect()
    }
}

impl CachedTarget {
    fn invalidate(&mut self) {
        self.revision += 1;
        self.found = None;
    }
}
