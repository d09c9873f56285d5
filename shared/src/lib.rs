//! Code shared by the controller, the webhook, `kubectl-asya`, the other crates of the operator and the tests: API
//! types, validation rules, names, transport configuration and the contents of pods. Everything here is pure: no
//! client, no async runtime, no clock.

pub mod admission;
pub mod api;
pub mod applied;
pub mod backoff;
pub mod config;
pub mod event;
mod explained;
pub mod hash;
pub mod inject;
pub mod json;
pub mod key;
pub mod names;
pub mod probe;
pub mod quantity;
pub mod queue_claims;
pub mod reason;
pub mod resolve;
pub mod review;
pub mod roll;
pub mod scaling;
pub mod transport;
pub mod validate;
