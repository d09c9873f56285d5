//! What to do about finalizers.

use asya_shared::names::FINALIZER;

use crate::reconcile::model::observed::Observed;

/// About the finalizers of an actor that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizers {
    /// They are as they should be.
    Keep,
    /// Put ours on (FIN-1).
    Add,
    /// Take the garbage collector's off, or it deletes again what is made (QUE-43).
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

/// The garbage collector's: it deletes what we made as long as this is there.
pub const FOREGROUND: &str = "foregroundDeletion";

pub fn has(observed: &Observed, finalizer: &str) -> bool {
    let mut all = observed.actor.finalizers.iter();
    all.any(|it| **it == *finalizer)
}
