//! `/metrics`: metrics are registered, refreshed and written alike, whatever they count.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a program.
pub trait Exposed: Sized + Send + Sync + 'static {
    /// Where they are registered.
    fn registry(&self) -> &Registry;

    /// What is refreshed before each scrape.
    fn gauges(&self) -> &Gauges<Self>;

    /// Reads gauges off what they measure, right before each scrape, so that they cannot drift.
    fn before_scrape(&self, refresh: impl Fn(&Self) + Send + Sync + 'static) {
        let refreshes = &self.gauges().0;
        let mut all = refreshes.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Box::new(refresh));
    }

    /// The text of all metrics.
    ///
    /// # Errors
    /// When a label or value cannot be written.
    fn text(&self) -> Result<String, fmt::Error> {
        let refreshes = &self.gauges().0;
        // One scrape at a time, or another would see gauges half refreshed.
        let refreshes = refreshes.lock().unwrap_or_else(PoisonError::into_inner);
        refreshes.iter().for_each(|refresh| refresh(self));
        let mut text = String::new();
        encode(&mut text, self.registry())?;
        Ok(text)
    }
}

type Refresh<M> = Box<dyn Fn(&M) + Send + Sync>;

/// What reads gauges off what they measure.
pub struct Gauges<M>(Mutex<Vec<Refresh<M>>>);

impl<M> Default for Gauges<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// The page with the metrics.
pub fn routes(metrics: Arc<impl Exposed>) -> Router {
    let page = move || {
        let text = metrics
            .text()
            .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR);
        let page = text.map(|text| ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response());
        std::future::ready(page)
    };
    Router::new().route("/metrics", get(page))
}

/// Registers a metric that begins empty.
pub fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    register(registry, name, help, M::default())
}

/// Registers a metric.
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
