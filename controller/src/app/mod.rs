//! The operator as a process: what runs in each replica, and what only the leader does.

pub mod actor_gauges;
pub mod binding_watches;
pub mod leadership;
pub mod leftovers;
pub mod namespaces;
pub mod operator;
pub mod queue_health;
pub mod uninstall;
pub mod watches;
pub mod worker;
