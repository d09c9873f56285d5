//! JSON Patches that are built, operation by operation (INJ-4).

use serde::Serialize;
use serde_json::Value;

/// A JSON Patch (RFC 6902) of a pod. It adds, and replaces or removes nothing but what is ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Patch(Vec<Operation>);

/// One step of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// A member or an item that is not there.
    Add {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// One of ours that is there.
    Replace {
        /// Where.
        path: Path,
        /// What.
        value: Value,
    },
    /// One of ours that goes.
    Remove {
        /// Where.
        path: Path,
    },
}

/// A JSON Pointer (RFC 6901) with at least one token: no mistake can make it the whole pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Path(String);

impl Path {
    /// A member of the pod.
    pub(super) fn of(token: &str) -> Self {
        Self(String::new()).then(token)
    }

    /// A member of what is there.
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

    /// An item of the list that is there.
    pub(super) fn item(self, index: usize) -> Self {
        self.then(&index.to_string())
    }

    /// The end of the list that is there.
    pub(super) fn end(self) -> Self {
        self.then("-")
    }
}

impl Patch {
    /// Its operations, in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.0
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The patch as an admission response carries it, before base64 (ADM-2).
    ///
    /// # Errors
    /// None that a patch of ours can cause: its keys are texts.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    pub(super) fn add(&mut self, path: Path, value: Value) {
        self.0.push(Operation::Add { path, value });
    }

    pub(super) fn replace(&mut self, path: Path, value: Value) {
        self.0.push(Operation::Replace { path, value });
    }

    pub(super) fn remove(&mut self, path: Path) {
        self.0.push(Operation::Remove { path });
    }
}
