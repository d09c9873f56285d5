//! What every object that we apply carries: its owner, its labels, and its own hash.

use kube::Resource;
use serde_json::{Value, json};

use crate::api::AsyncActor;
use crate::hash;
use crate::names::{self, annotation, label};

/// An object as we apply it.
#[derive(Clone, Debug, PartialEq)]
pub struct HashedManifest {
    /// The whole object.
    pub object: Value,
    /// Its hash, which it carries as annotation.
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

    /// Writes the object's hash into it, where the next pass reads whether it would send the same.
    #[must_use]
    pub fn new(mut object: Value) -> Self {
        let hash = hash::of_value(&object);
        object["metadata"]["annotations"][annotation::APPLIED_HASH] = Value::from(&*hash);
        Self { object, hash }
    }
}

/// The controller ownerReference to the actor with this uid.
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

/// The labels of an object that belongs to one actor.
pub(crate) fn child_labels(actor: &str) -> Value {
    json!({
        label::MANAGED_BY: names::MANAGED_BY,
        label::ASYA: actor,
        label::ACTOR: actor,
    })
}
