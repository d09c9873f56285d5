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

/// Limit on all connections together; an HTTP/2 connection counts 16 times. API servers open one per in-flight review
/// and keep 25 each. At about 75 KiB per connection at most, this many fit into the chart's memory limit beside index
/// and bodies.
pub const MOST_CONNECTIONS: usize = 1024;

/// The two stages of shutdown. Clones share state.
#[derive(Clone, Default)]
pub struct End {
    /// Clients are asked to close their connections.
    pub leaving: CancellationToken,
    /// No new connections are accepted.
    pub stop: CancellationToken,
}

/// Serves until `end`; in-flight requests then get `finish` to complete.
pub async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    routes: Router,
    connections: Connections,
    end: End,
    finish: Duration,
) {
    let End { leaving, stop } = end;
    let routes = routes.layer(from_fn_with_state(leaving, send_away));
    serve::serve(listener, Tls(tls), routes, connections, stop, finish).await;
}

/// API servers keep HTTP/1.1 connections to webhooks open. Closing one while a review is being written to it fails that
/// review, so each is closed with its last response; HTTP/2 has GOAWAY for this.
async fn send_away(
    State(leaving): State<CancellationToken>,
    request: Request,
    next: Next,
) -> Response {
    let is_kept = request.version() == Version::HTTP_11;
    let mut answer = next.run(request).await;
    if is_kept && leaving.is_cancelled() {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
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
