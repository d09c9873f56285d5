//! Logs (OPS-5).

use tracing_subscriber::EnvFilter;

use crate::BoxError;

/// JSON lines. kube's client logs whole answers that it cannot decode, Secrets among them: it is silenced.
///
/// # Errors
/// When the level is none, nor a filter.
pub fn start(level: &str) -> Result<(), BoxError> {
    let filter = EnvFilter::try_new(level)?.add_directive("kube_client::client=off".parse()?);
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .try_init()
}
