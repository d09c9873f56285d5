//! CEL rules that do not apply to objects that already violate them.

use kube::core::Rule;

/// A rule that an object may keep violating if it did so before the update. The API server itself skips a rule where
/// its part of the object did not change, but never treats an object with fields of unknown schema, such as a pod
/// template, as unchanged: without this, an actor older than the rule could not even lose its finalizer.
pub(super) fn unless_broken_before(rule: &str) -> Rule {
    let before = rule.replace("self.", "oldSelf.value().");
    Rule::new(format!("({rule}) || (oldSelf.hasValue() && !({before}))")).optional_old_self(true)
}
