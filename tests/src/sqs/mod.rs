//! An SQS server, and a client for tests.

mod admin;
pub(crate) mod server;

pub use admin::Sqs;
