//! Plans the actor's finalizers.

use asya_shared::names::FINALIZER;
use json_patch::PatchOperation;
use serde_json::{Value, json};

use crate::cluster::patch::{add, remove, test};
use crate::reconcile::model::observed::Observed;
use crate::record::{ActorRecord, Key};

/// The change to the finalizers of an actor that is not being torn down.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Finalizers {
    #[default]
    Keep,
    /// Add ours (FIN-1). Nothing may be created for an actor that no longer exists, because nothing would delete it
    /// again.
    Add(FinalizerPatch),
    /// Remove the garbage collector's, or it deletes recreated children again (QUE-43). We delete our objects ourselves
    /// before we remove our own finalizer.
    EndForeground(FinalizerPatch),
}

pub fn plan_finalizers(observed: &Observed) -> Finalizers {
    let actor = &observed.actor;
    if actor.metadata.deleting {
        let patch = FinalizerPatch::removing(actor, FOREGROUND);
        return patch.map_or(Finalizers::Keep, Finalizers::EndForeground);
    }
    if has_finalizer(observed) {
        return Finalizers::Keep;
    }
    Finalizers::Add(FinalizerPatch::adding(actor))
}

/// A JSON patch of the actor's finalizers. It tests the list: a merge patch would drop a finalizer that another
/// controller adds at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalizerPatch {
    pub actor: Key,
    pub operations: Vec<PatchOperation>,
}

impl FinalizerPatch {
    fn new(actor: &ActorRecord, change: [PatchOperation; 2]) -> Self {
        let uid = test(&["metadata", "uid"], json!(actor.metadata.uid));
        Self {
            actor: actor.metadata.key.clone(),
            operations: [uid].into_iter().chain(change).collect(),
        }
    }

    /// Adds ours.
    pub fn adding(actor: &ActorRecord) -> Self {
        let list = ["metadata", "finalizers"];
        let change = if actor.finalizers.is_empty() {
            [test(&list, Value::Null), add(&list, json!([FINALIZER]))]
        } else {
            let end = ["metadata", "finalizers", "-"];
            [
                test(&list, json!(actor.finalizers)),
                add(&end, json!(FINALIZER)),
            ]
        };
        Self::new(actor, change)
    }

    /// Removes one; `None` if the actor does not have it.
    pub fn removing(actor: &ActorRecord, finalizer: &str) -> Option<Self> {
        let index = actor.finalizers.iter().position(|it| **it == *finalizer)?;
        let list = test(&["metadata", "finalizers"], json!(actor.finalizers));
        let one = remove(&["metadata", "finalizers", &index.to_string()]);
        Some(Self::new(actor, [list, one]))
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
