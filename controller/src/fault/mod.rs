//! Faults and errors: what failed, what it affects, and when to requeue.

mod authorization;
mod conflict;
mod error;
mod fenced;
mod reason;
mod requeue;

pub use conflict::{Conflict, ConflictingField};
pub use error::{Error, StepError};
pub use fenced::Fenced;
pub use reason::{Fault, Reason};
pub use requeue::{BackoffKind, Requeue};
