//! What the webhook knows of an `AsyncActor` and decides about one. The webhook calls these functions in reviews and
//! `kubectl-asya` wherever a user asks, so both give the same answer.

mod actor;
mod binding;
mod spec;
mod target;

pub use actor::{Actor, ActorStatus, ProjectedActor};
pub use binding::{BindingInputs, bound_actor};
pub use spec::check_spec;
pub use target::Findings;
