//! TLS connections that carry HTTP/1.1 or HTTP/2 (ADM-1, CERT-8), and their end (AVL-3).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Version};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Who has not shaken hands by then is no API server (CERT-8).
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Longer than clients keep a connection that they do not use: they end it, so that no request meets its end.
const IDLE: Duration = Duration::from_mins(2);
/// An HTTP/2 connection on which nothing comes for so long is asked whether it lives.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// As many as are answered at once, over all connections.
const STREAMS: u32 = 256;
/// Reviews of usual size pass in one window; larger ones are granted more while they are read.
const WINDOW: u32 = 1 << 20;
/// After an error that concerns the process, such as no free file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

type Connections = auto::Builder<TokioExecutor>;

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
    end: End,
    finish: Duration,
) {
    let End { leaving, stop } = end;
    let routes = routes.layer(from_fn_with_state(leaving, send_away));
    let connections = Arc::new(connections());
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let connection = Connection {
            tls: tls.clone(),
            connections: Arc::clone(&connections),
            routes: routes.clone(),
            watcher: graceful.watcher(),
            stop: stop.clone(),
        };
        tokio::spawn(connection.serve(stream));
    }
    drop(listener);
    if timeout(finish, graceful.shutdown()).await.is_err() {
        warn!("reviews under way are cut off");
    }
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

fn connections() -> Connections {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_concurrent_streams(STREAMS);
    builder
}

struct Connection {
    tls: TlsAcceptor,
    connections: Arc<Connections>,
    routes: Router,
    watcher: Watcher,
    stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are small, and somebody waits for each.
        let _ = stream.set_nodelay(true);
        let shaken = tokio::select! {
            biased;
            // Nothing has been asked on it yet.
            () = self.stop.cancelled() => return,
            shaken = timeout(HANDSHAKE, self.tls.accept(stream)) => shaken,
        };
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return debug!(%error, "a TLS handshake failed"),
            Err(_) => return debug!("a TLS handshake took too long"),
        };
        let service = TowerToHyperService::new(self.routes);
        let served = self
            .connections
            .serve_connection(TokioIo::new(stream), service)
            .into_owned();
        if let Err(error) = self.watcher.watch(served).await {
            debug!(%error, "a connection broke");
        }
    }
}

#[cfg(test)]
mod tests;
