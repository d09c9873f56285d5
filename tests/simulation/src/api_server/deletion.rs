//! Deletion options, and the finalizers that result from them.

use serde_json::Value;

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct Deletion {
    /// Precondition on the object's uid.
    pub uid: Option<String>,
    /// Precondition on the object's resource version.
    pub version: Option<String>,
    /// Policy for dependents: `Orphan`, `Foreground` or `Background`.
    pub propagation: Option<String>,
}

/// Finalizer of an object whose dependents must be orphaned.
pub(super) const ORPHAN: &str = "orphan";
/// Finalizer of an object whose dependents must be deleted first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// The finalizers of an object.
pub(super) fn finalizers(object: &Value) -> impl Iterator<Item = &Value> {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.into_iter().flatten()
}

/// The finalizers of an object that is deleted with these options.
pub(super) fn finalizers_for(live: &Value, deletion: &Deletion) -> Vec<Value> {
    let is_wanted = |policy: &str, finalizer: &str| match deletion.propagation.as_deref() {
        Some(wanted) => wanted == policy,
        None => finalizers(live).any(|it| it == finalizer),
    };
    let others = finalizers(live).filter(|it| **it != ORPHAN && **it != FOREGROUND);
    let mut all: Vec<Value> = others.cloned().collect();
    for (policy, finalizer) in [("Orphan", ORPHAN), ("Foreground", FOREGROUND)] {
        if is_wanted(policy, finalizer) {
            all.push(finalizer.into());
        }
    }
    all
}
