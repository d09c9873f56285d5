//! Process plumbing shared by `asya-controller` and `asya-webhook`: installation flags, logging, API server
//! configuration, listeners, probes, metrics and the wall clock.

pub mod api_server;
pub mod check;
pub mod clock;
pub mod fair;
pub mod flags;
pub mod listen;
pub mod logs;
pub mod metrics;
pub mod probes;
pub mod program;
pub mod serve;
pub mod tasks;
pub mod watch_loop;

/// A fatal error, of which only the message is used.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
