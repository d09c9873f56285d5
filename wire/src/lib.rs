//! The protocol between operator, sidecar and runtime: environment variables and their defaults, queue names, envelope
//! keys, error codes, and the runtime's socket (SC-10). No dependency, no I/O.

pub mod duration;
pub mod env;
pub mod envelope;
pub mod percent;
pub mod queue;
pub mod socket;

/// The actor that receives successfully completed messages.
pub const HAPPY_END: &str = "happy-end";
/// The actor that receives failed messages.
pub const ERROR_END: &str = "error-end";
