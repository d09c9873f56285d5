//! The clients of the API server: behind the fence, and the lease's own.

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;

use super::fence::{Fence, FenceLayer, FencedExecutor};

/// Longer than a watch lasts ([`super::watch`]): a connection on which nothing comes for so long is dead.
pub const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A client whose every write passes the fence; `writes` counts them.
///
/// # Errors
/// When the configuration's credentials or certificates cannot be used.
pub fn fenced(config: Config, fence: &Fence, writes: Counter) -> kube::Result<Client> {
    let layer = FenceLayer::new(fence.clone(), writes);
    let connections = FencedExecutor(fence.clone());
    let builder = ClientBuilder::try_from((config, connections))?;
    Ok(builder.with_layer(&layer).build())
}

/// A client of its own connections, for the lease alone: a crowd of writes cannot delay a renewal.
///
/// # Errors
/// When the configuration's credentials or certificates cannot be used.
pub fn unfenced(config: Config) -> kube::Result<Client> {
    Client::try_from(config)
}
