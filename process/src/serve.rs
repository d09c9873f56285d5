//! HTTP server for untrusted clients: the number, memory and duration of connections are bounded, and the client with
//! the most connections is evicted first (ADM-20, ADM-21).

mod connections;
mod tracked_stream;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tracing::{debug, warn};

use self::connections::Connection;
pub use self::connections::{Activity, Connections, Count};
use self::tracked_stream::TrackedStream;

/// Drop clients that have not completed the TLS handshake within this time, so that idle connections cannot hold a slot
/// (CERT-8).
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than clients keep idle connections, so that the client closes first and no request races with the close.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Ping an HTTP/2 connection that has been silent for this long.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PONG_TIMEOUT: Duration = Duration::from_secs(10);
/// Few streams, because API servers use HTTP/1.1 for webhooks.
const MAX_STREAMS: u32 = 32;
/// An HTTP/2 connection counts as this many, because of the memory of its streams.
const HTTP2_WEIGHT: usize = 16;
/// Flow control windows: bytes of unread body data per stream and per connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 128 << 10;
/// Limits on the size of a request head, and on the bytes buffered per read or write.
const MAX_BUFFER_BYTES: usize = 32 << 10;
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Limits on streams that a client reset before they were accepted, and on streams that we reset.
const MAX_PENDING_RESETS: usize = 20;
const MAX_LOCAL_RESETS: usize = 128;
/// Delay after an accept error, such as no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// How often overdue connections are closed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Turns an accepted TCP connection into a stream that carries HTTP.
pub trait Transport: Send + Sync + 'static {
    /// The stream that carries HTTP.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Prepares an accepted connection for HTTP.
    ///
    /// # Errors
    /// If the client does not use this transport's protocol.
    fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<Accepted<Self::Stream>>> + Send;
}

/// A connection that is ready for HTTP.
pub struct Accepted<S> {
    /// The stream that carries HTTP.
    pub stream: S,
    /// Whether the stream carries HTTP/2.
    pub is_http2: bool,
    /// Whether the client is authenticated.
    pub is_authenticated: bool,
}

/// Plaintext HTTP/1.1.
struct Plain;

impl Transport for Plain {
    type Stream = TcpStream;

    async fn accept(&self, stream: TcpStream) -> io::Result<Accepted<TcpStream>> {
        Ok(Accepted {
            stream,
            is_http2: false,
            is_authenticated: false,
        })
    }
}

/// Connection limit of the health and metrics port: kubelets and Prometheus need few.
const MAX_PLAIN_CONNECTIONS: usize = 64;
/// How long to wait for in-flight probes and scrapes on shutdown.
const PLAIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves health and metrics over plaintext HTTP/1.1 until `stop` is cancelled.
pub async fn plain(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let connections = Connections::new(MAX_PLAIN_CONNECTIONS);
    serve(
        listener,
        Plain,
        routes,
        connections,
        stop,
        PLAIN_DRAIN_TIMEOUT,
    )
    .await;
}

/// Serves until `stop` is cancelled; in-flight requests then have `drain_timeout` to complete.
pub async fn serve<T: Transport>(
    listener: TcpListener,
    transport: T,
    routes: Router,
    connections: Connections,
    stop: CancellationToken,
    drain_timeout: Duration,
) {
    let graceful = GracefulShutdown::new();
    let shared = Arc::new(Shared {
        transport,
        http: http(),
        routes: routes.layer(from_fn(track_request)),
        stop,
    });
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            now = sweep.tick() => {
                connections.close_overdue(now);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(connection) = connections.admit(peer.ip(), Instant::now()) {
                    let (shared, watcher) = (Arc::clone(&shared), graceful.watcher());
                    tokio::spawn(async move { shared.serve(stream, connection, watcher).await });
                } else {
                    refused(peer.ip());
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    if timeout(drain_timeout, graceful.shutdown()).await.is_err() {
        warn!("aborting requests that are still in flight");
    }
}

fn refused(peer: IpAddr) {
    debug!(%peer, "connection refused: this client has the most connections, and all of them are busy");
}

/// Middleware that records the start and the success of requests on their connection.
async fn track_request(mut request: Request, next: Next) -> Response {
    let Some(activity) = request.extensions_mut().get::<Activity>().cloned() else {
        return next.run(request).await;
    };
    let in_flight = activity.begin(Instant::now());
    let response = next.run(request).await;
    if response.status().is_success() {
        in_flight.succeeded();
    }
    response
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(MAX_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PONG_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(MAX_BUFFER_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .max_concurrent_streams(MAX_STREAMS);
    builder
}

struct Shared<T> {
    transport: T,
    http: auto::Builder<TokioExecutor>,
    routes: Router,
    stop: CancellationToken,
}

impl<T: Transport> Shared<T> {
    async fn serve(&self, stream: TcpStream, connection: Connection, watcher: Watcher) {
        let closed = connection.close.clone();
        tokio::select! {
            biased;
            () = closed.cancelled() => debug!(peer = %connection.activity.peer, "a connection was closed"),
            () = self.run(stream, &connection, watcher) => {}
        }
    }

    async fn run(&self, stream: TcpStream, connection: &Connection, watcher: Watcher) {
        // Responses are small and latency-sensitive: disable Nagle's algorithm.
        let _ = stream.set_nodelay(true);
        let accepted = tokio::select! {
            biased;
            // No request has been read yet.
            () = self.stop.cancelled() => return,
            accepted = timeout(HANDSHAKE_TIMEOUT, self.transport.accept(stream)) => accepted,
        };
        let accepted = match accepted {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => return debug!(%error, "a TLS handshake failed"),
            Err(_) => return debug!("a TLS handshake timed out"),
        };
        let weight = if accepted.is_http2 { HTTP2_WEIGHT } else { 1 };
        if !connection.set_weight(weight, accepted.is_authenticated, Instant::now()) {
            return refused(connection.activity.peer);
        }
        let activity = connection.activity.clone();
        if accepted.is_http2 {
            // A spare HTTP/2 connection would hold too much memory, so its first request is expected at once.
            activity.bytes_received(Instant::now());
        }
        let stream = TrackedStream {
            stream: accepted.stream,
            activity: (!accepted.is_http2).then(|| activity.clone()),
        };
        let routes = self.routes.clone();
        let routes = routes.map_request(move |mut request: hyper::Request<_>| {
            request.extensions_mut().insert(activity.clone());
            request
        });
        let http = self.http.clone();
        let http = if accepted.is_http2 {
            http.http2_only()
        } else {
            http.http1_only()
        };
        let serving = http
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
            .into_owned();
        if let Err(error) = watcher.watch(serving).await {
            debug!(%error, "a connection failed");
        }
    }
}

#[cfg(test)]
mod tests;
