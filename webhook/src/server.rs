//! TLS connections that carry HTTP/1.1 or HTTP/2 (ADM-1, CERT-8), and their end (AVL-3).

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

/// All connections together; HTTP/2 counts 16 times. API servers open one per review that is under way, and keep 25
/// each. At about 75 KiB the most that one costs, they fit into the memory limit of the chart beside index and bodies.
pub const MOST_CONNECTIONS: usize = 1024;

/// When it ends: two moments, for all who hold a clone.
#[derive(Clone, Default)]
pub struct End {
    /// From now on clients are sent away.
    pub leaving: CancellationToken,
    /// From now on nothing new is taken.
    pub stop: CancellationToken,
}

/// Serves until the end; what is under way then gets `finish`.
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

/// API servers keep HTTP/1.1 connections to webhooks. One that is closed while a review is written to it costs that
/// review, so each is closed with its last answer; HTTP/2 has GOAWAY for that.
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
