//! RabbitMQ: the server, a client of its management API for tests, and a parser for that API's access log.

mod access_log;
mod admin;
pub(crate) mod server;

pub use access_log::{AccessLog, Call, Mark as AccessMark};
pub use admin::{Binding, Queue, RabbitMq};
pub use server::{ADMIN, OPERATOR, OPERATOR_PASSWORD};
