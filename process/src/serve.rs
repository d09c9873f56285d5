//! Serves HTTP to whoever can reach the port: connections, their memory and their time are bounded, and a peer that takes
//! more than others loses first (ADM-20, ADM-21).

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

/// Whoever has not finished the TLS handshake by then is no API server (CERT-8).
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longer than clients keep a connection that they do not use: they end it, so that no request meets its end.
const IDLE: Duration = Duration::from_mins(2);
/// An HTTP/2 connection on which nothing comes for so long is asked whether it lives.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// API servers talk HTTP/1.1 to webhooks; whoever chooses HTTP/2 gets a few requests at a time.
const STREAMS: u32 = 32;
/// So many streams with their windows and answers are what an HTTP/2 connection may cost.
const WEIGHT_OF_HTTP2: usize = 16;
/// Bytes of a body that nobody has read yet, of a stream and of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const WINDOW: u32 = 128 << 10;
/// Bytes of a head, and of what is read or written at a time.
const BUFFER: usize = 32 << 10;
const HEADERS: u32 = 16 << 10;
/// Streams that a client opened and reset before they were looked at, and those that we reset.
const RESETS: usize = 20;
const OWN_RESETS: usize = 128;
/// After an error that concerns the process, such as no free file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How often requests are sought that do not arrive.
const SWEEP: Duration = Duration::from_secs(1);

/// What carries HTTP over a TCP connection.
pub trait Transport: Send + Sync + 'static {
    /// What bytes are read from.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Makes an accepted connection ready for HTTP.
    ///
    /// # Errors
    /// When the client is not understood.
    fn accept(
        &self,
        stream: TcpStream,
    ) -> impl Future<Output = io::Result<Accepted<Self::Stream>>> + Send;
}

/// A connection that is ready for HTTP.
pub struct Accepted<S> {
    /// What bytes are read from.
    pub stream: S,
    /// Whether it carries HTTP/2.
    pub is_http2: bool,
    /// Whether the client proved who it is.
    pub is_authenticated: bool,
}

/// No TLS, and HTTP/1.1.
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

/// Health and metrics: kubelets and Prometheus need few connections.
const MOST_PLAIN: usize = 64;
/// What of theirs is under way when the process ends gets so long.
const FINISH: Duration = Duration::from_secs(5);

/// Serves health and metrics by HTTP/1.1, without TLS, until `stop`.
pub async fn plain(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let connections = Connections::new(MOST_PLAIN);
    serve(listener, Plain, routes, connections, stop, FINISH).await;
}

/// Serves until `stop`; requests under way then get `finish`.
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
                warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    if timeout(finish, graceful.shutdown()).await.is_err() {
        warn!("requests under way are cut off");
    }
}

fn refused(peer: IpAddr) {
    debug!(%peer, "a connection was refused: this client has the most, and all of them busy");
}

/// Lets the connection know of its requests.
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
        // Answers are small, and somebody waits for each.
        let _ = stream.set_nodelay(true);
        let accepted = tokio::select! {
            biased;
            // Nothing has been asked on it yet.
            () = self.stop.cancelled() => return,
            accepted = timeout(HANDSHAKE, self.transport.accept(stream)) => accepted,
        };
        let accepted = match accepted {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => return debug!(%error, "a TLS handshake failed"),
            Err(_) => return debug!("a TLS handshake took too long"),
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
            debug!(%error, "a connection broke");
        }
    }
}

#[cfg(test)]
mod tests;
