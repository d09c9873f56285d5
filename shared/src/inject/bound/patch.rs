//! Builds JSON Patches operation by operation (INJ-4).

use serde::Serialize;
use serde_json::Value;

/// A JSON Patch (RFC 6902) for a pod. It only adds, or replaces and removes what we own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Patch(Vec<Operation>);

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// Adds a member or list item that does not exist yet.
    Add {
        /// Where to add it.
        path: JsonPointer,
        /// The new value.
        value: Value,
    },
    /// Replaces an injected member or item.
    Replace {
        /// Location of the value to replace.
        path: JsonPointer,
        /// The new value.
        value: Value,
    },
    /// Removes an injected member or item.
    Remove {
        /// Location of the value to remove.
        path: JsonPointer,
    },
}

/// A JSON Pointer (RFC 6901) with at least one token, so that it can never refer to the whole pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct JsonPointer(String);

impl JsonPointer {
    /// A top-level member of the pod.
    pub(super) fn of(token: &str) -> Self {
        Self(String::new()).then(token)
    }

    /// A member of the object at this path.
    pub(super) fn then(mut self, token: &str) -> Self {
        self.0.push('/');
        for c in token.chars() {
            match c {
                '~' => self.0.push_str("~0"),
                '/' => self.0.push_str("~1"),
                c => self.0.push(c),
            }
        }
        self
    }

    /// An item of the list at this path.
    pub(super) fn item(self, index: usize) -> Self {
        self.then(&index.to_string())
    }

    /// The end of the list at this path.
    pub(super) fn end(self) -> Self {
        self.then("-")
    }
}

impl Patch {
    /// The operations, in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.0
    }

    /// Whether the patch changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Serialises the patch for an admission response, before base64 encoding (ADM-2).
    ///
    /// # Errors
    /// Never for a patch built here: all its keys are strings.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    pub(super) fn add(&mut self, path: JsonPointer, value: Value) {
        self.0.push(Operation::Add { path, value });
    }

    pub(super) fn replace(&mut self, path: JsonPointer, value: Value) {
        self.0.push(Operation::Replace { path, value });
    }

    pub(super) fn remove(&mut self, path: JsonPointer) {
        self.0.push(Operation::Remove { path });
    }
}
