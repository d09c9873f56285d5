//! Serves HTTP/1.1 and HTTP/2 over TLS, and shuts down gracefully (ADM-1, CERT-8, AVL-3).

use std::io;
use std::time::Duration;

use asya_process::serve::{self, Accepted, Connections, Transport};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Version};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Limit of all connections together; an HTTP/2 connection counts 16 times. API servers open one per in-flight review
/// and keep 25 each. At no more than about 75 KiB per connection, this many fit into the chart's memory limit, together
/// with index and bodies.
pub const MAX_CONNECTIONS: usize = 1024;

/// The two stages of shutdown. Clones share state.
#[derive(Clone, Default)]
pub struct Shutdown {
    /// HTTP/1.1 connections are closed with their next response.
    pub draining: CancellationToken,
    /// No new connections are accepted.
    pub stop: CancellationToken,
}

/// Serves until `shutdown`; in-flight requests then have `finish` to complete.
pub async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    routes: Router,
    connections: Connections,
    shutdown: Shutdown,
    finish: Duration,
) {
    let Shutdown { draining, stop } = shutdown;
    let routes = routes.layer(from_fn_with_state(draining, close_after_response));
    serve::serve(listener, Tls(tls), routes, connections, stop, finish).await;
}

/// API servers keep HTTP/1.1 connections to webhooks open. Closing one while it receives a review fails that review, so
/// close each with its last response; HTTP/2 has GOAWAY for this.
async fn close_after_response(
    State(draining): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    let is_persistent = request.version() == Version::HTTP_11;
    let mut response = next.run(request).await;
    if is_persistent && draining.is_cancelled() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

struct Tls(TlsAcceptor);

impl Transport for Tls {
    type Stream = TlsStream<TcpStream>;

    async fn accept(&self, stream: TcpStream) -> io::Result<Accepted<Self::Stream>> {
        let stream = self.0.accept(stream).await?;
        let (_, session) = stream.get_ref();
        Ok(Accepted {
            is_http2: session.alpn_protocol() == Some(b"h2"),
            is_authenticated: session.peer_certificates().is_some(),
            stream,
        })
    }
}

#[cfg(test)]
mod tests;
