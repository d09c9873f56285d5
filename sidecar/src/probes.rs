//! `/healthz`, `/readyz` and `/metrics` (SC-15, SC-16, SC-18).

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::config::Listen;
use crate::metrics::Metrics;

/// The liveness probe fails once the event loop has had no heartbeat for this long.
const STALL_LIMIT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum concurrent connections.
const MAX_CONNECTIONS: usize = 16;
/// Maximum size of a request head in bytes; the smallest that hyper supports.
const MAX_HEADER_SIZE: usize = 8 << 10;
/// Delay before another attempt to bind a port that is in use.
const REBIND_DELAY: Duration = Duration::from_mins(1);
const METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The state behind the probes.
#[derive(Debug)]
pub struct Health {
    started: Instant,
    last_heartbeat: AtomicU64,
    broker: AtomicBool,
    runtime: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last_heartbeat: AtomicU64::new(0),
            broker: AtomicBool::new(false),
            runtime: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// Records an iteration of the event loop.
    pub fn heartbeat(&self) {
        self.last_heartbeat.store(self.age(), Ordering::Relaxed);
    }

    /// Sets whether the broker is connected; returns whether that changed.
    pub fn set_broker(&self, connected: bool) -> bool {
        self.broker.swap(connected, Ordering::Relaxed) != connected
    }

    /// Sets whether the runtime is ready; returns whether that changed.
    pub fn set_runtime(&self, ready: bool) -> bool {
        self.runtime.swap(ready, Ordering::Relaxed) != ready
    }

    fn age(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the event loop had a heartbeat within [`STALL_LIMIT`].
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let stalled = self
            .age()
            .saturating_sub(self.last_heartbeat.load(Ordering::Relaxed));
        Duration::from_millis(stalled) < STALL_LIMIT
    }

    fn readiness(&self) -> (bool, String) {
        let (broker, runtime) = (
            self.broker.load(Ordering::Relaxed),
            self.runtime.load(Ordering::Relaxed),
        );
        let word = |yes| if yes { "ready" } else { "waiting" };
        (
            broker && runtime,
            format!("broker: {}\nruntime: {}\n", word(broker), word(runtime)),
        )
    }
}

/// Serves until the process exits. A port that is in use does not stop message processing.
pub async fn serve(listen: Listen, health: Arc<Health>, metrics: Arc<Metrics>) {
    let listener = loop {
        match bind(&listen.addresses()).await {
            Ok(listener) => break listener,
            Err(error) => {
                tracing::warn!(
                    "cannot serve probes and metrics (ASYA_METRICS_ADDR): {error}; retrying"
                );
                sleep(REBIND_DELAY).await;
            }
        }
    };
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Prevents a hot loop on persistent errors, such as too many open files.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (health, metrics) = (health.clone(), metrics.clone());
        tokio::spawn(async move {
            // Clients' connection errors do not matter.
            let _ = timeout(REQUEST_TIMEOUT, answer(stream, health, metrics)).await;
            drop(permit);
        });
    }
}

async fn bind(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn answer(
    stream: TcpStream,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let page = page(&request, &health, &metrics);
        std::future::ready(Ok::<_, Infallible>(page))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(MAX_HEADER_SIZE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn page(request: &Request<Incoming>, health: &Health, metrics: &Metrics) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, String::new());
    }
    match request.uri().path() {
        "/healthz" | "/health" => {
            if health.is_alive() {
                text(StatusCode::OK, "OK".to_owned())
            } else {
                text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the event loop is stalled\n".to_owned(),
                )
            }
        }
        "/readyz" => {
            let (ready, words) = health.readiness();
            text(
                if ready {
                    StatusCode::OK
                } else {
                    StatusCode::SERVICE_UNAVAILABLE
                },
                words,
            )
        }
        "/metrics" => match metrics.text() {
            Ok(all) => {
                let mut page = text(StatusCode::OK, all);
                page.headers_mut().insert(CONTENT_TYPE, METRICS_TYPE);
                page
            }
            Err(error) => {
                let mut words = String::new();
                // writing to a String cannot fail
                let _ = writeln!(words, "{error}");
                text(StatusCode::INTERNAL_SERVER_ERROR, words)
            }
        },
        _ => text(StatusCode::NOT_FOUND, String::new()),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
