//! Volume claims of a `StatefulSet` (VAL-14).

use serde_json::Value;

use super::Subject;
use super::violation::Violations;
use crate::api::{Workload, WorkloadKind, messages};

const PATH: &str = "spec.workload.volumeClaimTemplates";

fn claims(workload: &Workload) -> &[Value] {
    workload
        .volume_claim_templates
        .as_deref()
        .unwrap_or_default()
}

fn is_stateful_set(workload: &Workload) -> bool {
    workload.effective_kind() == WorkloadKind::StatefulSet
}

/// VAL-14.
pub(super) fn need_a_stateful_set(subject: &Subject<'_>, found: &mut Violations) {
    let misplaced = |it: &Workload| !is_stateful_set(it) && !claims(it).is_empty();
    if subject.spec.workload.as_ref().is_some_and(misplaced) {
        found.add(PATH, messages::CLAIMS_NEED_STATEFUL_SET);
    }
}

/// A change of kind creates a new workload, which may have claims (VAL-14).
pub(super) fn are_immutable(subject: &Subject<'_>, found: &mut Violations) {
    let old = subject.old().and_then(|it| it.workload.as_ref());
    let (Some(new), Some(old)) = (&subject.spec.workload, old) else {
        return;
    };
    if is_stateful_set(new) && is_stateful_set(old) && claims(new) != claims(old) {
        found.add(PATH, messages::CLAIMS_IMMUTABLE);
    }
}
