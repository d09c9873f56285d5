//! Protocol numbers, and the error for a protocol violation.

/// A protocol violation by the peer.
#[derive(Debug, thiserror::Error)]
#[error("AMQP protocol error: {0}")]
pub struct Malformed(pub(super) &'static str);

/// The only channel that is used.
pub(super) const CHANNEL: u16 = 1;
/// Bytes of a frame besides its payload: type, channel, size and end marker.
pub(super) const FRAME_OVERHEAD: usize = 8;
pub(super) const FRAME_END: u8 = 0xCE;
/// Maximum frame size to negotiate.
pub(super) const FRAME_MAX: u32 = 131_072;

/// Frame types.
pub(super) mod kind {
    pub(crate) const METHOD: u8 = 1;
    pub(crate) const HEADER: u8 = 2;
    pub(crate) const BODY: u8 = 3;
    pub(crate) const HEARTBEAT: u8 = 8;
}

/// Methods, as (class, method).
pub(super) mod id {
    pub(crate) const START: (u16, u16) = (10, 10);
    pub(crate) const START_OK: (u16, u16) = (10, 11);
    pub(crate) const TUNE: (u16, u16) = (10, 30);
    pub(crate) const TUNE_OK: (u16, u16) = (10, 31);
    pub(crate) const OPEN: (u16, u16) = (10, 40);
    pub(crate) const OPEN_OK: (u16, u16) = (10, 41);
    pub(crate) const CLOSE: (u16, u16) = (10, 50);
    pub(crate) const CLOSE_OK: (u16, u16) = (10, 51);
    pub(crate) const BLOCKED: (u16, u16) = (10, 60);
    pub(crate) const UNBLOCKED: (u16, u16) = (10, 61);
    pub(crate) const CHANNEL_OPEN: (u16, u16) = (20, 10);
    pub(crate) const CHANNEL_OPEN_OK: (u16, u16) = (20, 11);
    pub(crate) const FLOW: (u16, u16) = (20, 20);
    pub(crate) const FLOW_OK: (u16, u16) = (20, 21);
    pub(crate) const CHANNEL_CLOSE: (u16, u16) = (20, 40);
    pub(crate) const CHANNEL_CLOSE_OK: (u16, u16) = (20, 41);
    pub(crate) const DECLARE: (u16, u16) = (50, 10);
    pub(crate) const DECLARE_OK: (u16, u16) = (50, 11);
    pub(crate) const QOS: (u16, u16) = (60, 10);
    pub(crate) const QOS_OK: (u16, u16) = (60, 11);
    pub(crate) const CONSUME: (u16, u16) = (60, 20);
    pub(crate) const CONSUME_OK: (u16, u16) = (60, 21);
    pub(crate) const CANCEL: (u16, u16) = (60, 30);
    pub(crate) const CANCEL_OK: (u16, u16) = (60, 31);
    pub(crate) const PUBLISH: (u16, u16) = (60, 40);
    pub(crate) const RETURN: (u16, u16) = (60, 50);
    pub(crate) const DELIVER: (u16, u16) = (60, 60);
    pub(crate) const GET: (u16, u16) = (60, 70);
    pub(crate) const GET_OK: (u16, u16) = (60, 71);
    pub(crate) const GET_EMPTY: (u16, u16) = (60, 72);
    pub(crate) const ACK: (u16, u16) = (60, 80);
    pub(crate) const REJECT: (u16, u16) = (60, 90);
    pub(crate) const NACK: (u16, u16) = (60, 120);
    pub(crate) const SELECT: (u16, u16) = (85, 10);
    pub(crate) const SELECT_OK: (u16, u16) = (85, 11);
}
