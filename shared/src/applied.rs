//! What every object that we apply carries: its owner, and its own hash.

use kube::Resource;
use serde_json::{Value, json};

use crate::api::AsyncActor;
use crate::hash;
use crate::names::annotation;

/// An object as we apply it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sealed {
    /// The whole object.
    pub object: Value,
    /// Its hash, which it carries as annotation.
    pub hash: String,
}

impl Sealed {
    /// Seals an object without annotations.
    #[must_use]
    pub fn new(mut object: Value) -> Self {
        let hash = seal(&mut object);
        Self { object, hash }
    }
}

/// Writes the object's hash into it, where the next pass reads whether it would send the same.
pub(crate) fn seal(object: &mut Value) -> String {
    let hash = hash::of_value(object);
    object["metadata"]["annotations"] = json!({annotation::APPLIED_HASH: hash});
    hash
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
