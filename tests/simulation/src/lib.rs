//! A deterministic simulation of controller and webhook.
//!
//! The controller runs unchanged, as one or two replicas, and so does the webhook, as two, against an in-memory API
//! server, brokers and clock. Users, KEDA and workload controllers act concurrently, calls fail, and replicas crash.
//! Everything follows from one seed: the same seed gives the same run.

pub mod actions;
pub mod api_server;
pub mod broker;
pub mod clock;
pub mod connection;
pub mod convergence;
pub mod faults;
pub mod installation;
pub mod process;
pub mod randomness;
pub mod replicas;
pub mod run;
pub mod schedule;
pub mod seeds;
pub mod shrink;
pub mod trace;
pub mod webhook_replicas;
pub mod world;

#[cfg(test)]
mod tests;
