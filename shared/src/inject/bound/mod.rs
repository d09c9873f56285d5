//! What a binding adds to pods created by other controllers (spec binding, section 3), and the JSON Patch that adds it
//! (spec admission, section 2).
//!
//! A [`BoundActor`] is built when an actor changes and holds everything that does not depend on the pod. A review is
//! then [`PodView::decode`] followed by [`decide`], which is a pure function of the pod and the actors.

mod actor;
mod decide;
mod decision;
mod facts;
mod gate;
mod image;
mod in_template;
mod names;
mod ours;
mod patch;
mod plan;
mod pod;
mod pod_facts;
mod resources;
mod restore;

pub use actor::{ActorInputs, BoundActor, State};
pub use decide::decide;
pub use decision::{Action, Decision, Reason, ReviewPath};
pub use gate::Gate;
pub use in_template::without_ours;
pub use patch::{Operation, Patch, Path};
pub use plan::{BoundPlan, InjectedHash, PlanInputs};
pub use pod::PodView;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
