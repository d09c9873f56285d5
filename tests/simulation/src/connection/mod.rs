//! Connections of processes to the API server and to brokers, on which calls fail.

pub mod brokers;
pub mod kubernetes;
pub mod sqs;
