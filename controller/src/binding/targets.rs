//! The objects that actors bind to: read when a watch says that they have changed, and not before (BIND-61).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asya_shared::resolve::Resolution;

use super::Object;
use super::kinds::{Kind, Standing};
use crate::cluster::store::Scope;

/// What a target says.
#[derive(Debug)]
pub struct Reading {
    /// What that means.
    pub resolution: Resolution,
    /// Pods that are asked for, where the target's workload says so.
    pub replicas: Option<i32>,
    /// The uid of the target.
    pub uid: Box<str>,
    /// Tells its spec from another.
    pub spec: Box<str>,
    /// What we own of its pod template (BIND-50).
    pub templated: Option<TemplatePart>,
    /// A kind that would tell more and may not be read: the rule that is missing.
    pub refused: Option<(Kind, Arc<str>)>,
}

/// What we own of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplatePart {
    /// The fields, as one text.
    pub fields: String,
    /// The uid of the actor whose sidecar that is, as the template tells.
    pub actor: Option<Box<str>>,
}

impl TemplatePart {
    /// Whether it may be this actor's.
    pub fn is_of(&self, uid: &str) -> bool {
        self.actor.as_deref().is_none_or(|it| it == uid)
    }
}

/// What stands under a target's name.
#[derive(Clone, Debug)]
pub enum Found {
    /// This.
    Read(Arc<Reading>),
    /// Nothing.
    Absent,
    /// It cannot be asked for: of its kind this is known.
    OfKind(Standing),
    /// The watches have yet to show what there is.
    NotYet,
}

#[derive(Debug, Default)]
pub struct Targets {
    known: Mutex<HashMap<Object, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// What a watch has shown since; an answer to an earlier question is old.
    events: u64,
    found: Option<Found>,
    /// Versions of the objects by name that the answer was made from.
    versions: HashMap<Object, u64>,
}

/// Whether the answer to a question is known, or which question it is.
pub(super) enum Asked {
    Known(Found),
    Anew(u64),
}

impl Targets {
    pub(super) fn ask(&self, target: &Object) -> Asked {
        let mut known = self.lock();
        let known = known.entry(target.clone()).or_default();
        match &known.found {
            Some(found) => Asked::Known(found.clone()),
            None => Asked::Anew(known.events),
        }
    }

    /// Keeps the answer to a question, unless a watch has shown something since.
    pub(super) fn answer(
        &self,
        target: &Object,
        question: u64,
        found: Found,
        versions: HashMap<Object, u64>,
    ) {
        if let Some(known) = self.lock().get_mut(target)
            && known.events == question
        {
            known.found = Some(found);
            known.versions = versions;
        }
    }

    /// Number of targets of which something is kept.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Forgets those that nobody binds any more.
    pub(super) fn keep(&self, is_bound: impl Fn(&Object) -> bool) {
        self.lock().retain(|target, _| is_bound(target));
    }

    /// A watch shows a version of the target, or of what it belongs to. Answers whether what is known is old.
    pub(super) fn saw(&self, target: &Object, object: &Object, version: u64) -> bool {
        let mut known = self.lock();
        let known = known.entry(target.clone()).or_default();
        if known.found.is_some() && known.versions.get(object) >= Some(&version) {
            return false;
        }
        known.renew();
        true
    }

    /// Something that the target consists of has changed.
    pub(super) fn touched(&self, target: &Object) {
        self.lock().entry(target.clone()).or_default().renew();
    }

    /// The target is gone. Answers whether that is news.
    pub(super) fn gone(&self, target: &Object) -> bool {
        let mut known = self.lock();
        let known = known.entry(target.clone()).or_default();
        let before = known.found.take();
        known.renew();
        known.versions.clear();
        known.found = Some(Found::Absent);
        !matches!(before, Some(Found::Absent))
    }

    pub(super) fn of_kind(&self, kind: &Kind, scope: &Scope) -> Vec<Object> {
        let known = self.lock();
        let versions = known.values().flat_map(|it| it.versions.keys());
        let all = known.keys().chain(versions);
        all.filter(|it| it.is_in(kind, scope)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Object, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn renew(&mut self) {
        self.events += 1;
        self.found = None;
    }
}
