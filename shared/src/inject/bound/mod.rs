//! What pods of other controllers get from a binding (spec binding, section 3), and the patch that gets a given pod
//! there (spec admission, section 2).
//!
//! A [`BoundActor`] is made when an actor changes, and holds everything that does not depend on the pod. A review is
//! then [`PodView::decode`] and [`decide`]: a function of pod, actor and settings alone.

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
