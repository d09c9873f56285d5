//! Structured logging (OPS-5).

use tracing_subscriber::EnvFilter;

use crate::BoxError;

/// Logs JSON lines. Disables the target of kube's client, which logs response bodies that it cannot decode, including
/// Secrets.
///
/// # Errors
/// If `level` is neither a log level nor a filter.
pub fn start(level: &str) -> Result<(), BoxError> {
    let filter = EnvFilter::try_new(level)?.add_directive("kube_client::client=off".parse()?);
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .try_init()
}
