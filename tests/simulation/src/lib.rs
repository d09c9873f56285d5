//! A deterministic simulation of controller and webhook.
//!
//! The controller runs unchanged, as one or two replicas, and so does the webhook, as two, against an API server, brokers
//! and a clock in memory. Users, KEDA and the controllers of workloads act beside them, calls fail, and replicas crash.
//! Everything follows from one seed, and the same seed gives the same run.

pub mod act;
pub mod act_owners;
pub mod api_server;
pub mod broker;
pub mod broker_link;
pub mod clock;
pub mod expect;
pub mod expect_bindings;
pub mod expect_owners;
pub mod faults;
pub mod installation;
pub mod link;
pub mod plan;
pub mod plan_bindings;
pub mod plan_owners;
pub mod plan_transports;
pub mod process;
pub mod randomness;
pub mod replicas;
pub mod run;
pub mod seeds;
pub mod shrink;
pub mod sqs_link;
pub mod trace;
pub mod webhook_replicas;
pub mod world;

#[cfg(test)]
mod tests;
