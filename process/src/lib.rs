//! What `asya-controller` and `asya-webhook` have in common as processes: flags of the installation, logs, the way
//! to the API server, what they listen on, probes and metrics.

pub mod api_server;
pub mod check;
pub mod fair;
pub mod flags;
pub mod listen;
mod logs;
pub mod metrics;
pub mod probes;
pub mod program;
pub mod serve;
pub mod tasks;
pub mod watching;

/// An error of which only the text matters: it ends a process.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
