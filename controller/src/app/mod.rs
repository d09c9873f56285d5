//! The operator as a process: the tasks of every replica, and those of the leader.

pub mod actor_gauges;
pub mod args;
pub mod binding_watches;
pub mod leadership;
pub mod namespaces;
pub mod operator;
pub mod program;
pub mod queue_health;
pub mod replica;
pub mod shared_config_maps;
pub mod uninstall;
pub mod watches;
pub mod worker;
