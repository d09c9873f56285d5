//! The two modes of an actor: standalone and binding.

use super::Subject;
use super::violation::Violations;
use crate::api::messages;

/// VAL-2, BIND-10.
pub(super) fn is_one(subject: &Subject<'_>, found: &mut Violations) {
    if subject.spec.mode().is_err() {
        found.add("spec", messages::ONE_MODE);
    }
}

/// BIND-13.
pub(super) fn is_immutable(subject: &Subject<'_>, found: &mut Violations) {
    let changed = |old: &crate::api::AsyncActorSpec| {
        old.workload_ref.is_some() != subject.spec.workload_ref.is_some()
    };
    if subject.old().is_some_and(changed) {
        found.add("spec", messages::MODE_IMMUTABLE);
    }
}

/// BIND-11.
pub(super) fn runtime_needs_target(subject: &Subject<'_>, found: &mut Violations) {
    if subject.spec.workload_ref.is_none() && subject.spec.runtime.is_some() {
        found.add("spec.runtime", messages::RUNTIME_NEEDS_TARGET);
    }
}

/// BIND-12.
pub(super) fn binding_needs_target(subject: &Subject<'_>, found: &mut Violations) {
    if subject.spec.workload_ref.is_none() && subject.spec.binding.is_some() {
        found.add("spec.binding", messages::BINDING_NEEDS_TARGET);
    }
}
