//! API server clients: the fenced one, and the lease's own.

use std::time::Duration;

use kube::client::ClientBuilder;
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;

use super::fence::{Fence, FenceLayer, FencedExecutor};

/// Longer than a watch lasts ([`super::watch`]): a connection that receives nothing for this long is dead.
pub const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// A client whose writes all pass the fence; `writes` counts them.
///
/// # Errors
/// When the configuration's credentials or certificates cannot be used.
pub fn fenced(config: Config, fence: &Fence, writes: Counter) -> kube::Result<Client> {
    let layer = FenceLayer::new(fence.clone(), writes);
    let connections = FencedExecutor(fence.clone());
    let builder = ClientBuilder::try_from((config, connections))?;
    Ok(builder.with_layer(&layer).build())
}

/// A client with its own connections, for the lease alone, so that a burst of writes cannot delay a renewal.
///
/// # Errors
/// When the configuration's credentials or certificates cannot be used.
pub fn unfenced(config: Config) -> kube::Result<Client> {
    Client::try_from(config)
}
