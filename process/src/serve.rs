//! HTTP server for untrusted clients: connections, their memory and their time are bounded, and the client that uses
//! the most loses first (ADM-20, ADM-21).

mod connections;
mod watched;

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
use self::watched::Watched;

/// Drop clients that have not completed the TLS handshake within this time, so that idle connections cannot hold a slot
/// (CERT-8).
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longer than clients keep idle connections: the client closes first, so that no request races with the close.
const IDLE: Duration = Duration::from_mins(2);
/// Ping an HTTP/2 connection that has been silent for this long.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// API servers speak HTTP/1.1 to webhooks; clients that choose HTTP/2 get only a few concurrent requests.
const STREAMS: u32 = 32;
/// An HTTP/2 connection counts as this many connections: its streams, with their windows and responses, may cost that
/// much.
const WEIGHT_OF_HTTP2: usize = 16;
/// Flow control windows: bytes of unread body data per stream and per connection.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 128 << 10;
/// Limits on the size of a request head, and on the bytes buffered per read or write.
const BUFFER: usize = 32 << 10;
const HEADERS: u32 = 16 << 10;
/// Limits on streams that a client reset before they were accepted, and on streams that we reset.
const RESETS: usize = 20;
const OWN_RESETS: usize = 128;
/// Pause after an accept error that concerns the process, such as no free file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How often overdue connections are closed.
const SWEEP: Duration = Duration::from_secs(1);

/// Turns an accepted TCP connection into a stream that carries HTTP.
pub trait Transport: Send + Sync + 'static {
    /// The stream that carries HTTP.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Prepares an accepted connection for HTTP.
    ///
    /// # Errors
    /// When the client does not speak this transport's protocol.
    fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<Accepted<Self::Stream>>> + Send;
}

/// A connection that is ready for HTTP.
pub struct Accepted<S> {
    /// The stream that carries HTTP.
    pub stream: S,
    /// Whether it carries HTTP/2.
    pub is_http2: bool,
    /// Whether the client authenticated itself.
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
const MOST_PLAIN: usize = 64;
/// How long in-flight probes and scrapes get to finish on shutdown.
const FINISH: Duration = Duration::from_secs(5);

/// Serves health and metrics over plaintext HTTP/1.1 until `stop` is cancelled.
pub async fn plain(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let connections = Connections::new(MOST_PLAIN);
    serve(listener, Plain, routes, connections, stop, FINISH).await;
}

/// Serves until `stop` is cancelled; in-flight requests then get `finish` to complete.
pub async fn serve<T: Transport>(
    listener: TcpListener,
    transport: T,
    routes: Router,
    connections: Connections,
    stop: CancellationToken,
    finish: Duration,
) {
    let graceful = GracefulShutdown::new();
    let shared = Arc::new(Shared {
        transport,
        http: http(),
        routes: routes.layer(from_fn(answer)),
        stop,
    });
    let mut sweep = interval(SWEEP);
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
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    if timeout(finish, graceful.shutdown()).await.is_err() {
        warn!("aborting requests that are still in flight");
    }
}

fn refused(peer: IpAddr) {
    debug!(%peer, "connection refused: this client has the most connections, and all of them are busy");
}

/// Middleware that records the start and the success of requests on their connection.
async fn answer(mut request: Request, next: Next) -> Response {
    let Some(activity) = request.extensions_mut().get::<Activity>().cloned() else {
        return next.run(request).await;
    };
    let answering = activity.begin(Instant::now());
    let answer = next.run(request).await;
    if answer.status().is_success() {
        answering.succeeded();
    }
    answer
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(BUFFER)
        .max_header_list_size(HEADERS)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(OWN_RESETS)
        .max_concurrent_streams(STREAMS);
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
            // No request has been read from it yet.
            () = self.stop.cancelled() => return,
            accepted = timeout(HANDSHAKE, self.transport.accept(stream)) => accepted,
        };
        let accepted = match accepted {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => return debug!(%error, "a TLS handshake failed"),
            Err(_) => return debug!("a TLS handshake timed out"),
        };
        let weight = if accepted.is_http2 {
            WEIGHT_OF_HTTP2
        } else {
            1
        };
        if !connection.known(weight, accepted.is_authenticated, Instant::now()) {
            return refused(connection.activity.peer);
        }
        let activity = connection.activity.clone();
        let stream = Watched {
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
        let served = http
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
            .into_owned();
        if let Err(error) = watcher.watch(served).await {
            debug!(%error, "a connection failed");
        }
    }
}

#[cfg(test)]
mod tests;
