//! The fields that a binding adds to pods created by other controllers (spec binding, section 3), and the JSON Patch
//! that adds them (spec admission, section 2).
//!
//! A [`BoundActor`] is built when an actor changes and holds everything that does not depend on the pod. A review is
//! then [`PodView::decode`] followed by [`decide`], which is a pure function of the pod and the actors.

mod actor;
mod decide;
mod decision;
mod derive_properties;
mod eviction;
mod existing;
mod image;
mod in_template;
pub mod missing;
mod names;
mod patch;
mod plan;
mod pod;
mod pod_properties;
mod probe_result;
mod resources;
mod restore;
mod spec_conflict;

pub use actor::{ActorInputs, BoundActor, InjectionState};
pub use decide::decide;
pub use decision::{Action, Decision, InjectionReason, NotInjectable};
pub use in_template::strip_injected;
pub use patch::{JsonPointer, Operation, Patch};
pub use plan::{BoundPlan, InjectedHash, PlanInputs};
pub use pod::PodView;
pub use probe_result::ProbeResult;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
