//! An SQS server of our own, and what a test asks of it.

mod admin;
pub(crate) mod server;

pub use admin::Sqs;
