//! The namespaces in which bindings are allowed (BIND-2). CEL rules on `spec` cannot see the namespace, and the
//! controller reports these violations as reasons of condition `TargetResolved`, so they are separate from the other
//! rules.

use super::{Subject, Violation};
use crate::names::is_excluded_namespace;

/// The target is in another namespace: reason `CrossNamespace` (BIND-2).
#[must_use]
pub fn cross_namespace_violation(subject: &Subject<'_>) -> Option<Violation> {
    let named = subject.spec.workload_ref.as_ref()?.namespace.as_deref()?;
    (!named.is_empty() && named != subject.namespace).then(|| Violation {
        path: "spec.workloadRef.namespace".to_owned(),
        problem: "an actor can bind only in its own namespace".to_owned(),
        fix: Some(format!("remove it, or create the AsyncActor in {named}")),
    })
}

/// Bindings are not allowed in Kubernetes' own namespaces and in the operator's: reason `NamespaceExcluded` (BIND-2).
#[must_use]
pub fn excluded_namespace_violation(
    subject: &Subject<'_>,
    operator_namespace: &str,
) -> Option<Violation> {
    subject.spec.workload_ref.as_ref()?;
    let namespace = subject.namespace;
    is_excluded_namespace(namespace, operator_namespace).then(|| Violation {
        path: "metadata.namespace".to_owned(),
        problem: format!("targets in {namespace} cannot be bound"),
        fix: Some("run the target in a namespace of its own".to_owned()),
    })
}
