//! Plans the actor's finalizers.

use asya_shared::names::FINALIZER;
use json_patch::PatchOperation;
use serde_json::{Value, json};

use crate::cluster::patch::{add, remove, test};
use crate::reconcile::model::observed::Observed;
use crate::record::{ActorRecord, FOREGROUND_DELETION, Key};

/// The change to the finalizers of an actor that is not being torn down.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Finalizers {
    #[default]
    Keep,
    /// Add ours, before anything is created for the actor: nothing would delete it otherwise (FIN-1).
    Add(FinalizerPatch),
    /// Remove the garbage collector's, which would delete recreated children again. We delete our objects ourselves
    /// before we remove our own finalizer (QUE-43).
    RemoveForeground(FinalizerPatch),
}

pub fn plan_finalizers(observed: &Observed) -> Finalizers {
    let actor = &observed.actor;
    if actor.metadata.deleting {
        let patch = FinalizerPatch::removing(actor, FOREGROUND_DELETION);
        return patch.map_or(Finalizers::Keep, Finalizers::RemoveForeground);
    }
    if actor.has_finalizer(FINALIZER) {
        return Finalizers::Keep;
    }
    Finalizers::Add(FinalizerPatch::adding(actor))
}

/// A JSON patch of the actor's finalizers. It tests the list first: a merge patch would drop a finalizer that another
/// controller adds concurrently.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalizerPatch {
    pub actor: Key,
    pub operations: Vec<PatchOperation>,
}

impl FinalizerPatch {
    fn new(actor: &ActorRecord, change: PatchOperation) -> Self {
        // The API server drops an empty list.
        let list = match actor.finalizers.as_slice() {
            [] => Value::Null,
            finalizers => json!(finalizers),
        };
        Self {
            actor: actor.metadata.key.clone(),
            operations: vec![
                test(&["metadata", "uid"], json!(actor.metadata.uid)),
                test(&["metadata", "finalizers"], list),
                change,
            ],
        }
    }

    /// Adds our finalizer.
    pub fn adding(actor: &ActorRecord) -> Self {
        let change = if actor.finalizers.is_empty() {
            add(&["metadata", "finalizers"], json!([FINALIZER]))
        } else {
            add(&["metadata", "finalizers", "-"], json!(FINALIZER))
        };
        Self::new(actor, change)
    }

    /// Removes `finalizer`; `None` if the actor does not have it.
    pub fn removing(actor: &ActorRecord, finalizer: &str) -> Option<Self> {
        let index = actor
            .finalizers
            .iter()
            .position(|known| **known == *finalizer)?;
        let removal = remove(&["metadata", "finalizers", &index.to_string()]);
        Some(Self::new(actor, removal))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use json_patch::Patch;
    use serde_json::{Value, json};

    use super::FinalizerPatch;
    use crate::reconcile::tests::fixtures::{actor, record, spec};
    use crate::record::ActorRecord;

    const OURS: &str = "asya.sh/finalizer";
    const OTHER: &str = "example.com/other";

    /// The stored actor. A missing list is null here: for the API server, a test of null holds for both.
    fn with(finalizers: &Value) -> Value {
        let metadata = json!({"finalizers": finalizers});
        actor(&metadata, &spec(&json!({})), &json!({}))
    }

    fn read(finalizers: &Value) -> Arc<ActorRecord> {
        let mut stored = with(finalizers);
        let metadata = stored["metadata"].as_object_mut().unwrap();
        metadata.retain(|_, value| !value.is_null());
        record(&stored)
    }

    /// The finalizers after the patch, or `None` if the API server refuses it.
    fn patched(patch: &FinalizerPatch, mut stored: Value) -> Option<Value> {
        let patch = Patch(patch.operations.clone());
        json_patch::patch(&mut stored, &patch).ok()?;
        Some(stored["metadata"]["finalizers"].clone())
    }

    /// FIN-1, QUE-43
    #[test]
    fn finalizers_are_patched_only_on_the_actor_and_the_list_that_were_read() {
        type Planned<'a> = &'a dyn Fn(&ActorRecord) -> Option<FinalizerPatch>;
        let adding = |read: &ActorRecord| Some(FinalizerPatch::adding(read));
        let removing = |read: &ActorRecord| FinalizerPatch::removing(read, OURS);
        let cases: [(Planned<'_>, Value, Value); 3] = [
            (&adding, json!(null), json!([OURS])),
            (&adding, json!([OTHER]), json!([OTHER, OURS])),
            (&removing, json!([OTHER, OURS]), json!([OTHER])),
        ];
        for (planned, before, after) in cases {
            let patch = planned(&read(&before)).unwrap();
            assert_eq!(patched(&patch, with(&before)), Some(after));
            let mut recreated = with(&before);
            recreated["metadata"]["uid"] = json!("another");
            assert_eq!(patched(&patch, recreated), None, "{before}: recreated");
            let changed = with(&json!(["example.com/third", OTHER, OURS]));
            assert_eq!(patched(&patch, changed), None, "{before}: changed");
        }
        assert_eq!(removing(&read(&json!([OTHER]))), None);
    }
}
