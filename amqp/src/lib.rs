//! The subset of AMQP 0-9-1 that the sidecar and `kubectl asya` need: one channel per connection, for either consuming
//! or publishing.
//!
//! Why not a crate: `amqprs` does not announce the capabilities `connection.blocked` and
//! `authentication_failure_close`, so SC-29 cannot hold and a refused login looks like a lost connection; an unexpected
//! frame panics in a separate task, after which consuming stops silently (the defect of SC-21). `lapin` needs three
//! threads, and three times the memory and CPU time that SC-103 and SC-104 allow.

mod connection;
mod content;
mod encode;
mod handshake;
mod method;
mod properties;
mod protocol;
mod reader;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use connection::{CONSUMER_TIMEOUT, Closing, Connection};
pub use handshake::{Login, OpenError, Purpose};
pub use method::Event;
pub use properties::Properties;
pub use protocol::Malformed;
pub use stream::Stream;
