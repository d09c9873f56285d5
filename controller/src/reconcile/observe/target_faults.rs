//! Why a target cannot be bound, before it is resolved.

use crate::binding::kinds::Kind;
use crate::binding::{KindAvailability, ObjectId};
use crate::fault::{Fault, Reason};

/// Fault for a kind that cannot be read (RES-6).
pub(super) fn kind_fault(target: &ObjectId, availability: &KindAvailability) -> Fault {
    let kind = &target.kind;
    match availability {
        KindAvailability::Forbidden(rule) => forbidden_fault(kind, rule),
        KindAvailability::NotNamespaced => Fault::until_change(
            Reason::UnsupportedTarget,
            format!(
                "spec.workloadRef: {kind} is cluster-scoped and cannot be bound; bind the namespaced object that \
                 creates the pods"
            ),
        ),
        KindAvailability::NotInstalled
        | KindAvailability::Unknown
        | KindAvailability::Served(_) => Fault::until_change(
            Reason::KindNotInstalled,
            format!(
                "spec.workloadRef: the API server does not serve {kind}; the actor binds once its \
                 CustomResourceDefinition is installed"
            ),
        ),
    }
}

/// Needs no retry: the watch of kinds retries, and enqueues the actor once the kind is readable.
pub(super) fn forbidden_fault(kind: &Kind, rule: &str) -> Fault {
    Fault::until_change(
        Reason::KindForbidden,
        format!(
            "spec.workloadRef: the operator may not read {kind}; add this rule to its ClusterRole:\n{}",
            rule.trim_end()
        ),
    )
}

/// Rare: the index is updated from the watch of actors, which also triggers the reconcile.
pub(super) fn unindexed_fault() -> Fault {
    Fault::until_change(Reason::TargetNotReady, "spec.workloadRef cannot be read")
}

/// Fault for a target that an older actor binds (BIND-45).
pub(super) fn already_bound_fault(target: &ObjectId, owner: &str) -> Fault {
    let kind = target.kind.group_kind().kind;
    let name = &target.key.name;
    let text = format!(
        "spec.workloadRef: {kind}/{name} is already bound by AsyncActor {owner}; choose another target, or set that actor's queue.deletionPolicy to Retain, which keeps its queue and messages, and delete it"
    );
    Fault::until_change(Reason::AlreadyBound, text)
}
