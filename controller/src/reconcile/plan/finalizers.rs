//! Plans the actor's finalizers.

use asya_shared::names::FINALIZER;

use crate::reconcile::model::observed::Observed;

/// The change to the finalizers of an actor that is not being torn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizers {
    Keep,
    /// Add ours (FIN-1).
    Add,
    /// Remove the garbage collector's, or it deletes recreated children again (QUE-43).
    EndForeground,
}

pub fn plan_finalizers(observed: &Observed) -> Finalizers {
    match observed.actor.metadata.deleting {
        false if !has_finalizer(observed) => Finalizers::Add,
        true if has(observed, FOREGROUND) => Finalizers::EndForeground,
        _ => Finalizers::Keep,
    }
}

pub fn has_finalizer(observed: &Observed) -> bool {
    has(observed, FINALIZER)
}

/// The garbage collector's finalizer: it deletes our children as long as this is set.
pub const FOREGROUND: &str = "foregroundDeletion";

pub fn has(observed: &Observed, finalizer: &str) -> bool {
    let mut all = observed.actor.finalizers.iter();
    all.any(|it| **it == *finalizer)
}
