//! API server clients: a fenced one, and a separate one for the lease.

use std::time::Duration;

use http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;
use tower::retry::RetryLayer;
use tower::{BoxError, Layer, ServiceBuilder};

use super::fence::{Fence, FenceLayer, FencedConnector};
use super::named_errors::NamedErrorsLayer;

/// Longer than a watch lasts ([`super::watch`]): a connection that receives nothing for this long is dead.
pub const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Builds a client whose writes all pass the fence; `writes` counts them. Its layers are those of kube's own client,
/// whose connections cannot be fenced; its errors also name the request.
///
/// # Errors
/// If the configuration's credentials or certificates are unusable.
pub fn fenced(config: &Config, fence: &Fence, writes: Counter) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let fenced = FencedConnector::new(tcp, fence.clone());
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(fenced)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let retry = config.default_retry.then(RetryPolicy::server_retry);
    let service = ServiceBuilder::new()
        .layer(NamedErrorsLayer)
        .layer(FenceLayer::new(fence.clone(), writes))
        .layer(config.base_uri_layer())
        .option_layer(retry.map(RetryLayer::new))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// Puts a client that needs no connections behind the fence; `writes` counts its writes.
pub fn fenced_in_process(client: Client, fence: &Fence, writes: Counter) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    let fenced = FenceLayer::new(fence.clone(), writes).layer(service);
    Client::new(NamedErrorsLayer.layer(fenced), namespace)
}

/// Builds a client with its own connections, only for the lease, so that a burst of writes cannot delay a renewal.
///
/// # Errors
/// If the configuration's credentials or certificates are unusable.
pub fn unfenced(config: Config) -> kube::Result<Client> {
    Client::try_from(config)
}
