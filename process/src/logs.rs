//! Structured logging (OPS-5).

use tracing_subscriber::EnvFilter;

use crate::BoxError;

/// Logs JSON lines. kube's client logs response bodies that it cannot decode, Secrets included, so its target is
/// switched off.
///
/// # Errors
/// When `level` is neither a log level nor a filter.
pub fn start(level: &str) -> Result<(), BoxError> {
    let filter = EnvFilter::try_new(level)?.add_directive("kube_client::client=off".parse()?);
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .try_init()
}
