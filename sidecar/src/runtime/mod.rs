//! The runtime at the other end of the socket.

pub mod ready;
pub mod socket;

use bytes::Bytes;

/// The interface to the runtime.
pub trait Runtime: Send + Sync + 'static {
    /// Sends a message and waits for the reply.
    fn call(&self, request: Bytes) -> impl Future<Output = Result<Bytes, CallError>> + Send;

    /// Whether it is available, as far as is known without connecting to it.
    fn is_available(&self) -> bool;

    /// Requests a readiness check after the runtime did not accept a message, or terminated while processing one.
    fn recheck(&self);

    /// Reports that a call timed out and its connection was closed, upon which the runtime exits if the handler still
    /// runs.
    fn call_timed_out(&self);
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
    /// The announced reply size, in bytes, exceeds the limit.
    TooLarge(usize),
}

/// Readiness of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not ready yet, or no longer.
    Waiting,
    /// Ready for requests.
    Ready {
        /// Maximum concurrent requests.
        concurrency: usize,
    },
    /// Not ready within the startup timeout (SC-12).
    Never,
    /// Neither exited nor answered after a call timed out, or no longer accepts connections (SC-52).
    Stuck,
}
