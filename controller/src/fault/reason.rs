//! Why an actor is not as specified.

pub use asya_shared::reason::Reason;

use super::Requeue;

/// A fault to report in a condition, and when to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    /// The condition's message: what is wrong, where, and how to fix it.
    pub message: String,
    pub requeue: Requeue,
}

impl Fault {
    /// A fault that only a change of the actor, the configuration or another object resolves.
    pub fn until_change(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            requeue: Requeue::AwaitChange,
        }
    }
}
