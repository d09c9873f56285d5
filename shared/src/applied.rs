//! Metadata common to all objects that we apply: owner reference, labels and hash annotation.

use kube::Resource;
use serde_json::{Value, json};

use crate::api::AsyncActor;
use crate::hash;
use crate::names::{self, annotation, label};

/// An object to apply, annotated with its own hash.
#[derive(Clone, Debug, PartialEq)]
pub struct HashedManifest {
    /// The complete object.
    pub object: Value,
    /// Hash of the object, as in its annotation.
    pub hash: String,
}

impl HashedManifest {
    /// The object's kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Writes the object's hash into its annotations, so that the next reconcile can tell whether it would send the
    /// same object.
    #[must_use]
    pub fn new(mut object: Value) -> Self {
        let hash = hash::of_value(&object);
        object["metadata"]["annotations"][annotation::APPLIED_HASH] = Value::from(&*hash);
        Self { object, hash }
    }
}

/// The controller owner reference to the actor with this UID.
pub(crate) fn owner_reference(actor: &str, uid: &str) -> Value {
    json!({
        "apiVersion": AsyncActor::api_version(&()),
        "kind": AsyncActor::kind(&()),
        "name": actor,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Labels of an object that belongs to one actor.
pub(crate) fn child_labels(actor: &str) -> Value {
    json!({
        label::MANAGED_BY: names::MANAGED_BY,
        label::ASYA: actor,
        label::ACTOR: actor,
    })
}
