//! `/metrics`: registers, refreshes and encodes the metrics of both programs.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics that a program exposes.
pub trait ExposedMetrics: Sized + Send + Sync + 'static {
    /// The registry that holds them.
    fn registry(&self) -> &Registry;

    /// The gauges that are refreshed before each scrape.
    fn gauges(&self) -> &Gauges<Self>;

    /// Registers a callback that sets gauges from their source right before each scrape, so that they cannot drift.
    fn before_scrape(&self, refresh: impl Fn(&Self) + Send + Sync + 'static) {
        self.gauges().0.lock().push(Box::new(refresh));
    }

    /// Encodes all metrics as text.
    ///
    /// # Errors
    /// If a label or value cannot be encoded.
    fn text(&self) -> Result<String, fmt::Error> {
        let refreshes = &self.gauges().0;
        // Serialize scrapes: a concurrent one would see half-refreshed gauges.
        let refreshes = refreshes.lock();
        refreshes.iter().for_each(|refresh| refresh(self));
        let mut text = String::new();
        encode(&mut text, self.registry())?;
        Ok(text)
    }
}

type Refresh<M> = Box<dyn Fn(&M) + Send + Sync>;

/// Callbacks that refresh gauges before a scrape.
pub struct Gauges<M>(Mutex<Vec<Refresh<M>>>);

impl<M> Default for Gauges<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Serves the metrics on `/metrics`.
pub fn routes(metrics: Arc<impl ExposedMetrics>) -> Router {
    let handler = move || {
        let text = metrics
            .text()
            .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR);
        let response =
            text.map(|text| ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response());
        std::future::ready(response)
    };
    Router::new().route("/metrics", get(handler))
}

/// Registers a metric with its default value and returns it.
pub fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    register(registry, name, help, M::default())
}

/// Registers `metric` and returns it.
pub fn register<M: Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests;
