//! The target of a binding.

use super::violation::Violations;
use super::{Subject, Violation};
use crate::api::{WorkloadRef, messages};

/// BIND-14.
pub(super) fn is_immutable(subject: &Subject<'_>, found: &mut Violations) {
    let old = subject.old().and_then(|it| it.workload_ref.as_ref());
    let (Some(new), Some(old)) = (&subject.spec.workload_ref, old) else {
        return;
    };
    if (new.group(), &new.kind, &new.name) != (old.group(), &old.kind, &old.name) {
        found.add("spec.workloadRef", messages::TARGET_IMMUTABLE);
    }
}

/// BIND-15.
pub(super) fn api_version_has_a_group(subject: &Subject<'_>, found: &mut Violations) {
    let well_formed = |it: &WorkloadRef| {
        it.api_version
            .split_once('/')
            .is_some_and(|(group, version)| {
                let in_group = |c: char| {
                    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-')
                };
                let in_version = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
                !group.is_empty()
                    && group.chars().all(in_group)
                    && version
                        .strip_prefix('v')
                        .is_some_and(|it| !it.is_empty() && it.chars().all(in_version))
            })
    };
    if subject
        .spec
        .workload_ref
        .as_ref()
        .is_some_and(|it| !well_formed(it))
    {
        found.add("spec.workloadRef.apiVersion", messages::API_VERSION);
    }
}

/// BIND-16.
pub(super) fn rejects_jobs(subject: &Subject<'_>, found: &mut Violations) {
    let completes = |it: &WorkloadRef| matches!(it.kind.as_str(), "Job" | "CronJob");
    if subject.spec.workload_ref.as_ref().is_some_and(completes) {
        found.add("spec.workloadRef.kind", messages::NO_JOBS);
    }
}

/// Another actor has bound the target; the caller finds it in an index (BIND-45).
#[must_use]
pub fn target_already_bound(
    target: &WorkloadRef,
    owner_namespace: &str,
    owner_name: &str,
) -> Violation {
    let WorkloadRef { kind, name, .. } = target;
    Violation {
        path: "spec.workloadRef".to_owned(),
        problem: format!("{kind}/{name} is already bound by {owner_namespace}/{owner_name}"),
        fix: Some("choose another target, or set that actor's queue.deletionPolicy to Retain, which keeps its queue and messages, and delete it".to_owned()),
    }
}
