//! The error of a call by a process that may no longer be the leader.

use std::error::Error;

/// The call was not made or was aborted, because this process may no longer be the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the leader (any more): nothing was written")]
pub struct Fenced;

impl Fenced {
    /// Whether `error` or one of its sources comes from the fence.
    #[must_use]
    pub fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::is_cause_of)
    }
}
