#![allow(clippy::unwrap_used, clippy::expect_used)]

use axum::body::{Body, to_bytes};
use axum::http::Request;
use prometheus_client::metrics::gauge::Gauge;
use tower::ServiceExt;

use super::*;

struct Levels {
    registry: Registry,
    gauges: Gauges<Self>,
    level: Gauge,
}

impl Levels {
    fn new() -> Arc<Self> {
        let mut registry = Registry::default();
        Arc::new(Self {
            level: add(&mut registry, "level", "Current level"),
            gauges: Gauges::default(),
            registry,
        })
    }
}

impl ExposedMetrics for Levels {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn gauges(&self) -> &Gauges<Self> {
        &self.gauges
    }
}

#[tokio::test]
async fn metrics_are_served_as_openmetrics_text() {
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = routes(Levels::new()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_TYPE], CONTENT_TYPE);
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert!(body.ends_with(b"# EOF\n"));
}

#[test]
fn gauges_are_refreshed_before_each_scrape() {
    let levels = Levels::new();
    levels.before_scrape(|it| {
        it.level.inc();
    });
    assert!(levels.text().unwrap().contains("level 1\n"));
    assert!(levels.text().unwrap().contains("level 2\n"));
}
