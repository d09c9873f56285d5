//! The runtime at the other end of the socket.

pub mod ready;
pub mod socket;

use bytes::Bytes;

/// The interface to the runtime.
pub trait Runtime: Send + Sync + 'static {
    fn call(&self, request: Bytes) -> impl Future<Output = Result<Bytes, CallError>> + Send;

    /// Whether the runtime is available, as far as is known without connecting to it.
    fn is_available(&self) -> bool;

    /// The ready file as it is now; `None` while there is none. A runtime that ends removes it, and the next one
    /// creates another.
    fn ready_file(&self) -> Option<Identity>;

    /// Requests a readiness check after the runtime did not accept a message, or terminated while processing one.
    fn recheck(&self);

    /// Reports that a call timed out and its connection was closed, which makes the runtime exit if the handler is
    /// still running.
    fn call_timed_out(&self);
}

/// Distinguishes successive ready files of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub inode: u64,
    pub changed: (i64, i64),
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The runtime did not read the whole request, so it has not processed it (SC-48).
    NotRead,
    /// The runtime terminated after reading the request (SC-49).
    Ended,
    /// The runtime read the request, and the deadline was exceeded (SC-51).
    TimedOut,
    /// The announced reply size exceeds the limit; in bytes.
    TooLarge(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not ready yet, or no longer.
    Waiting,
    /// Ready for requests.
    Ready { concurrency: usize },
    /// Not ready within the startup timeout (SC-12).
    Never,
    /// It neither exited nor answered after a call timed out, or it no longer accepts connections (SC-52).
    Stuck,
}
