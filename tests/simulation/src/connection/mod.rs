//! Connections of processes to the API server and the brokers, with injected faults.

pub mod brokers;
pub mod kubernetes;
pub mod sqs;
