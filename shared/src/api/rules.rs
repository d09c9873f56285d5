//! CEL rules that spare objects which broke them before.

use kube::core::Rule;

/// A rule that an update may go on breaking. The API server skips a rule by itself where its part of the object
/// did not change, but never finds an object with fields of unknown schema unchanged, such as a pod template:
/// without this an actor older than the rule could not even lose its finalizer.
pub(super) fn unless_broken_before(rule: &str) -> Rule {
    let before = rule.replace("self.", "oldSelf.value().");
    Rule::new(format!("({rule}) || (oldSelf.hasValue() && !({before}))")).optional_old_self(true)
}
