//! The `AsyncActor`, as users write it and as we answer.

mod spec;
mod status;

pub use spec::*;
pub use status::*;
