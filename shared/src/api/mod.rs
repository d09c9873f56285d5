//! The `AsyncActor`: its spec, the values in force, and its status.
//!
//! Doc comments on types and fields become the texts of `kubectl explain`: write them for users, and put implementation
//! notes into `//` comments.
#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each public type into a function"
)]
#![expect(
    clippy::doc_markdown,
    reason = "texts of kubectl explain show no markup"
)]

mod actor;
mod binding;
mod binding_status;
mod crd;
mod env;
mod in_force;
pub mod messages;
mod queue;
mod resources;
mod rules;
mod scaling;
mod schema;
mod sidecar;
mod status;
mod timeout;
mod workload;

#[cfg(test)]
mod tests;

pub use actor::*;
pub use binding::*;
pub use binding_status::*;
pub use crd::crd;
pub use env::*;
pub use in_force::*;
pub use queue::*;
pub use resources::*;
pub use scaling::*;
pub use sidecar::*;
pub use status::*;
pub use timeout::*;
pub use workload::*;
