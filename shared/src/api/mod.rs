//! The `AsyncActor`: its spec, its effective values, and its status.
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
mod effective;
mod env;
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
pub use effective::*;
pub use env::*;
pub use queue::*;
pub use resources::*;
pub use scaling::*;
pub use sidecar::*;
pub use status::*;
pub use timeout::*;
pub use workload::*;
