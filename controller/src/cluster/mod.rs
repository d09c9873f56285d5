//! The Kubernetes API: clients, watches, stores, leadership, and the objects that the operator applies.

pub mod client;
pub mod config_maps;
pub mod crd;
pub mod fence;
pub mod foreign;
pub mod foreign_names;
pub mod impersonation;
pub mod keda;
pub mod leader;
mod named_errors;
pub mod objects;
pub mod patch;
pub mod pods;
pub mod rollouts;
pub mod store;
pub mod waiting_actors;
pub mod watch;
pub mod watch_scope;
pub mod workload;
