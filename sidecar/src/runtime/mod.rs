//! The runtime at the other end of the socket.

pub mod ready;
pub mod socket;

use bytes::Bytes;

/// The runtime.
pub trait Runtime: Send + Sync + 'static {
    /// Hands a message over and waits for the reply.
    fn call(&self, request: Bytes) -> impl Future<Output = Result<Bytes, CallError>> + Send;

    /// Whether it takes messages at this moment, as far as can be told without asking it.
    fn is_there(&self) -> bool;

    /// It did not take a message, so ask it whether it does.
    fn doubt(&self);

    /// A call was hung up, at which the runtime ends itself.
    fn hung_up(&self);
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It did not read all of the request, so it did nothing with it (SC-48).
    NotRead,
    /// It ended after it had read the request (SC-49).
    Ended,
    /// The deadline passed (SC-51).
    TimedOut,
    /// It announces a reply of so many bytes, which is too much.
    TooLarge(usize),
}

/// Whether the runtime takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not yet, or not now.
    Waiting,
    /// It does, so many at a time.
    Ready {
        /// How many it serves at a time.
        concurrency: usize,
    },
    /// It did not become ready in time after the start (SC-12).
    Never,
    /// It did not end itself after it was hung up (SC-52).
    Stuck,
}
