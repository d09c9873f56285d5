//! As much of AMQP 0-9-1 as the sidecar needs: one channel per connection, on which it consumes or publishes.
//!
//! Why not a crate: `amqprs` does not announce the capabilities `connection.blocked` and `authentication_failure_close`,
//! so SC-29 cannot hold and a refused login looks like a lost connection; an unexpected frame panics in a task of its own,
//! after which nothing is consumed and nobody is told (the defect of SC-21). `lapin` needs three threads and thrice the
//! memory and processor time that SC-103 and SC-104 allow.

mod connection;
mod content;
mod encode;
mod handshake;
mod method;
mod reader;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use connection::Connection;
pub use handshake::{Login, OpenError, Purpose};
pub use method::Event;
pub use stream::{Tls, connect};

/// What a peer sent that is not AMQP as we know it.
#[derive(Debug, thiserror::Error)]
#[error("the broker sent what is not AMQP 0-9-1: {0}")]
pub struct Malformed(&'static str);

/// The channel that everything runs on.
const CHANNEL: u16 = 1;
/// Bytes around the payload of a frame: its type, channel and size, and its end.
const FRAME_OVERHEAD: usize = 8;
const FRAME_END: u8 = 0xCE;
/// The largest frame that we take or send, if the broker allows it.
const FRAME_MAX: u32 = 131_072;

/// Types of frames.
mod kind {
    pub(super) const METHOD: u8 = 1;
    pub(super) const HEADER: u8 = 2;
    pub(super) const BODY: u8 = 3;
    pub(super) const HEARTBEAT: u8 = 8;
}

/// Methods, as (class, method).
mod id {
    pub(super) const START: (u16, u16) = (10, 10);
    pub(super) const START_OK: (u16, u16) = (10, 11);
    pub(super) const TUNE: (u16, u16) = (10, 30);
    pub(super) const TUNE_OK: (u16, u16) = (10, 31);
    pub(super) const OPEN: (u16, u16) = (10, 40);
    pub(super) const OPEN_OK: (u16, u16) = (10, 41);
    pub(super) const CLOSE: (u16, u16) = (10, 50);
    pub(super) const CLOSE_OK: (u16, u16) = (10, 51);
    pub(super) const BLOCKED: (u16, u16) = (10, 60);
    pub(super) const UNBLOCKED: (u16, u16) = (10, 61);
    pub(super) const CHANNEL_OPEN: (u16, u16) = (20, 10);
    pub(super) const CHANNEL_OPEN_OK: (u16, u16) = (20, 11);
    pub(super) const FLOW: (u16, u16) = (20, 20);
    pub(super) const FLOW_OK: (u16, u16) = (20, 21);
    pub(super) const CHANNEL_CLOSE: (u16, u16) = (20, 40);
    pub(super) const CHANNEL_CLOSE_OK: (u16, u16) = (20, 41);
    pub(super) const QOS: (u16, u16) = (60, 10);
    pub(super) const QOS_OK: (u16, u16) = (60, 11);
    pub(super) const CONSUME: (u16, u16) = (60, 20);
    pub(super) const CONSUME_OK: (u16, u16) = (60, 21);
    pub(super) const CANCEL: (u16, u16) = (60, 30);
    pub(super) const CANCEL_OK: (u16, u16) = (60, 31);
    pub(super) const PUBLISH: (u16, u16) = (60, 40);
    pub(super) const RETURN: (u16, u16) = (60, 50);
    pub(super) const DELIVER: (u16, u16) = (60, 60);
    pub(super) const ACK: (u16, u16) = (60, 80);
    pub(super) const NACK: (u16, u16) = (60, 120);
    pub(super) const SELECT: (u16, u16) = (85, 10);
    pub(super) const SELECT_OK: (u16, u16) = (85, 11);
}
