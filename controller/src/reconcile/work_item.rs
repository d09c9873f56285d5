//! What the leader's work queue holds.

use crate::record::Key;

/// A piece of work for the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkItem {
    /// Bring an actor a step closer to what it asks for.
    Actor(Key),
    /// Keep the runtime script in its home namespace (RUN-3).
    RuntimeScript,
}

impl WorkItem {
    /// The actor that it is about.
    pub fn actor(&self) -> Option<&Key> {
        match self {
            Self::Actor(key) => Some(key),
            Self::RuntimeScript => None,
        }
    }
}
