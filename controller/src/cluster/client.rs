//! API server clients: a fenced one, and a separate one for the lease.

use std::time::Duration;

use http::Request;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;
use tower::Layer;

use super::fence::{Fence, FenceLayer, FencedExecutor};

/// Longer than a watch lasts ([`super::watch`]): a connection that receives nothing for this long is dead.
pub const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Builds a client whose writes all pass the fence; `writes` counts them.
///
/// # Errors
/// If the configuration's credentials or certificates are unusable.
pub fn fenced(config: Config, fence: &Fence, writes: Counter) -> kube::Result<Client> {
    let layer = FenceLayer::new(fence.clone(), writes);
    let connections = FencedExecutor(fence.clone());
    let builder = ClientBuilder::try_from((config, connections))?;
    Ok(builder.with_layer(&layer).build())
}

/// Puts a client that needs no connections behind the fence; `writes` counts its writes.
pub fn fenced_in_process(client: Client, fence: &Fence, writes: Counter) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(
        FenceLayer::new(fence.clone(), writes).layer(service),
        namespace,
    )
}

/// Builds a client with its own connections, only for the lease, so that a burst of writes cannot delay a renewal.
///
/// # Errors
/// If the configuration's credentials or certificates are unusable.
pub fn unfenced(config: Config) -> kube::Result<Client> {
    Client::try_from(config)
}
