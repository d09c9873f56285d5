//! Cache of the objects that actors bind to. A target is read again only after a watch has shown a change (BIND-61).

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::resolve::Resolution;
use parking_lot::Mutex;

use super::Object;
use super::kinds::{Kind, KindAvailability};
use crate::cluster::store::Scope;

/// A target as read and resolved.
#[derive(Debug)]
pub struct Reading {
    /// Outcome of the resolution.
    pub resolution: Resolution,
    /// Desired replicas, if the target's workload sets them.
    pub replicas: Option<i32>,
    pub uid: Box<str>,
    /// Hash of the target's spec.
    pub spec: Box<str>,
    /// The part of its pod template that we own (BIND-50).
    pub templated: Option<TemplatePart>,
    /// A related kind that may not be read, and the missing RBAC rule.
    pub refused: Option<(Kind, Arc<str>)>,
}

/// The part of a pod template that we own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplatePart {
    /// Fingerprint of the owned fields.
    pub fields: String,
    /// Uid of the actor whose sidecar it holds, if the template names one.
    pub actor: Option<Box<str>>,
}

impl TemplatePart {
    /// Whether it can be this actor's.
    pub fn is_of(&self, uid: &str) -> bool {
        self.actor.as_deref().is_none_or(|it| it == uid)
    }
}

/// Result of looking up a target.
#[derive(Clone, Debug)]
pub enum Found {
    Read(Arc<Reading>),
    /// The target does not exist.
    Absent,
    /// Its kind is not served or not readable.
    OfKind(KindAvailability),
    /// The watches have not synced yet.
    NotYet,
}

#[derive(Debug, Default)]
pub struct Targets {
    known: Mutex<HashMap<Object, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Number of changes seen so far. A read that started before the latest one is stale.
    events: u64,
    found: Option<Found>,
    /// Resource versions of the objects that `found` was built from.
    versions: HashMap<Object, u64>,
}

/// Either a cached result, or the number of events before a new read.
pub(super) enum Asked {
    Known(Found),
    Anew(u64),
}

impl Targets {
    pub(super) fn ask(&self, target: &Object) -> Asked {
        let mut known = self.known.lock();
        let known = known.entry(target.clone()).or_default();
        match &known.found {
            Some(found) => Asked::Known(found.clone()),
            None => Asked::Anew(known.events),
        }
    }

    /// Caches the result of a read, unless a watch has shown a change since it started.
    pub(super) fn answer(
        &self,
        target: &Object,
        question: u64,
        found: Found,
        versions: HashMap<Object, u64>,
    ) {
        if let Some(known) = self.known.lock().get_mut(target)
            && known.events == question
        {
            known.found = Some(found);
            known.versions = versions;
        }
    }

    /// Number of cached targets.
    pub(super) fn len(&self) -> usize {
        self.known.lock().len()
    }

    /// Drops targets that no actor binds any more.
    pub(super) fn keep(&self, is_bound: impl Fn(&Object) -> bool) {
        self.known.lock().retain(|target, _| is_bound(target));
    }

    /// Handles a new version of the target or of one of its owners. Returns whether the cached result is stale.
    pub(super) fn saw(&self, target: &Object, object: &Object, version: u64) -> bool {
        let mut known = self.known.lock();
        let known = known.entry(target.clone()).or_default();
        if known.found.is_some() && known.versions.get(object) >= Some(&version) {
            return false;
        }
        known.renew();
        true
    }

    /// Invalidates the cached result after a change of an object that the target consists of.
    pub(super) fn touched(&self, target: &Object) {
        self.known.lock().entry(target.clone()).or_default().renew();
    }

    /// Records that the target was deleted. Returns whether that is news.
    pub(super) fn gone(&self, target: &Object) -> bool {
        let mut known = self.known.lock();
        let known = known.entry(target.clone()).or_default();
        let before = known.found.take();
        known.renew();
        known.versions.clear();
        known.found = Some(Found::Absent);
        !matches!(before, Some(Found::Absent))
    }

    pub(super) fn of_kind(&self, kind: &Kind, scope: &Scope) -> Vec<Object> {
        let known = self.known.lock();
        let versions = known.values().flat_map(|it| it.versions.keys());
        let all = known.keys().chain(versions);
        all.filter(|it| it.is_in(kind, scope)).cloned().collect()
    }
}

impl Known {
    fn renew(&mut self) {
        self.events += 1;
        self.found = None;
    }
}
