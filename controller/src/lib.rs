//! The controller of Asya's `AsyncActor`s.
//!
//! The program is [`main`]. The rest of the public interface serves simulations, which run a [`Replica`] against an API
//! server and brokers in memory.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod admission;
mod app;
mod binding;
mod broker;
mod certificates;
mod clock_skew;
mod cluster;
mod condition;
mod context;
mod fault;
mod flags;
mod pods;
mod reconcile;
mod record;
mod restore_delay;
mod runtime_script;
mod scaling;
mod telemetry;
mod work_queue;

pub use app::args::Args;
pub use app::leadership::Ending;
pub use app::program::main;
pub use app::replica::{Connections, Replica, ReplicaConfig};
pub use broker::http_client;
