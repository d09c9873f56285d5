//! `/healthz` and `/readyz` (OPS-6, ADM-1).

use std::future::ready;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// The probe endpoints: `/healthz` returns 200 while the process responds; `/readyz` returns 503 with one line per
/// `pending` item, or 200 once nothing is pending.
pub fn routes(pending: impl Fn() -> Vec<String> + Clone + Send + Sync + 'static) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(move || ready(readyz(&pending()))))
}

fn readyz(pending: &[String]) -> (StatusCode, String) {
    if pending.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, pending.join("\n"))
    }
}
