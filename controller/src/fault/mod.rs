//! What failed, whom it affects, and when to try again.

mod authorization;
mod error;
mod fenced;
mod reason;

pub use error::{Error, StepError};
pub use fenced::Fenced;
pub use reason::{Failure, Fault, Reason, Requeue};
