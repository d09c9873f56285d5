//! `/healthz`, `/readyz` and `/metrics`, by plain HTTP (ADM-1, AVL-2).

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// Answers what is not ready, one line each.
pub type Pending = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The probes and the metrics. `/healthz` answers as long as the process does.
pub fn routes(pending: Pending, metrics: Arc<Metrics>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(readyz))
        .with_state(pending);
    let scraped = Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics);
    probes.merge(scraped)
}

async fn readyz(State(pending): State<Pending>) -> (StatusCode, String) {
    let pending = pending();
    if pending.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, pending.join("\n"))
    }
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// An address on which we cannot serve.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address:?} ({flag}): {source}")]
pub struct BindError {
    address: String,
    flag: &'static str,
    source: std::io::Error,
}

/// Listens on `host:port`; `:port` means all interfaces. `flag` is what set the address.
///
/// # Errors
/// When the address cannot be understood or is not to be had.
pub async fn bind(address: &str, flag: &'static str) -> Result<TcpListener, BindError> {
    let bound = match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            // A machine without IPv6.
            Err(_) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    };
    bound.map_err(|source| BindError {
        address: address.to_owned(),
        flag,
        source,
    })
}
