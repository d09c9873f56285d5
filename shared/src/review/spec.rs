//! Checks the spec that a write gives an actor (VAC-2, VAC-4, VAC-6).

use super::target::{self, Findings};
use crate::admission::facts::WebhookFacts;
use crate::validate::{self, Subject};

/// Everything that can be said of a spec without knowing other actors: violations, and warnings that reject nothing.
/// Neither is sorted.
#[must_use]
pub fn check_spec(
    subject: &Subject<'_>,
    operator_namespace: &str,
    facts: &WebhookFacts,
) -> Findings {
    let (spec, old) = (subject.spec, subject.old());
    let mut findings = Findings {
        errors: validate::check(subject),
        warnings: validate::warnings(subject),
    };
    let excluded = validate::excluded_namespace_violation(subject, operator_namespace);
    findings
        .errors
        .extend(validate::cross_namespace_violation(subject));
    findings.errors.extend(excluded);
    if old.is_none_or(|old| old.workload_ref != spec.workload_ref) {
        let target::Findings { errors, warnings } = target::check_target(spec, facts);
        findings.errors.extend(errors);
        findings.warnings.extend(warnings);
    }
    let scale_down = target::scale_down_warning(spec, old);
    findings.warnings.extend(scale_down);
    findings
}
