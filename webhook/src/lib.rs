//! The admission webhook of Asya's `AsyncActor`s: the program, its review of pods without a cluster, and a [`Replica`]
//! for simulations.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod actor;
mod args;
mod body_budget;
mod client;
mod deletion;
mod dispatch;
mod events;
mod facts;
mod index;
mod metrics;
pub mod offline;
mod outcome;
mod pod;
mod program;
mod readiness;
mod replica;
mod review;
mod routes;
mod server;
#[cfg(test)]
mod testing;

pub use args::Args;
pub use client::Clients;
pub use program::start;
pub use replica::Replica;
