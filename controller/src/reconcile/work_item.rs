//! Items of the leader's work queue.

use crate::record::Key;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkItem {
    /// Reconcile an actor.
    Actor(Key),
    /// Maintain the runtime script in its namespace (RUN-3).
    RuntimeScript,
}

impl WorkItem {
    pub fn actor(&self) -> Option<&Key> {
        match self {
            Self::Actor(key) => Some(key),
            Self::RuntimeScript => None,
        }
    }
}
