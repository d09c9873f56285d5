//! The webhook's metrics (section 7 of the admission specification). Labels have few values: none is the name of a pod
//! or container, or free text (OBS-1).

use std::sync::Arc;
use std::time::Duration;

use asya_certs::serve::CertificateMetrics;
use asya_process::metrics::{ExposedMetrics, Gauges, add, register};
use asya_process::serve::Count;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::outcome::{EndpointPath, ReviewReason, ReviewResult};

/// Histogram buckets in seconds.
const DURATIONS: [f64; 12] = [
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];
/// Histogram buckets in bytes.
const SIZES: [f64; 8] = [
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
];

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Every metric of the webhook.
pub struct Metrics {
    registry: Registry,
    gauges: Gauges<Self>,
    /// Labels: `path`; `operation`: `CREATE`, `UPDATE`, `DELETE`, `CONNECT` or `other`; `result`: `patched`, `empty`,
    /// `allowed`, `denied` or `error`; `reason`: see conditions; `dry_run`: `true` or `false`.
    reviews: Family<Labels<5>, Counter>,
    /// Labels: `path`.
    durations: Family<Labels<1>, Histogram, fn() -> Histogram>,
    review_bytes: Histogram,
    patch_bytes: Histogram,
    in_flight: Gauge,
    reflector_age: Gauge,
    /// Labels: `kind`: `leaf` or `ca`.
    cert_expiry: Family<Labels<1>, Gauge>,
    /// Labels: `result`: `served` or `refused`.
    cert_reloads: Family<Labels<1>, Counter>,
    connections: Gauge,
    /// Labels: `reason`: `Evicted`, `Refused` or `Overdue`.
    connections_closed: Family<Labels<1>, Counter>,
}

/// The labels of a completed review.
#[derive(Clone, Copy, Debug)]
pub struct ReviewLabels {
    pub path: EndpointPath,
    /// The operation; `other` if Kubernetes has no such operation.
    pub operation: &'static str,
    pub result: ReviewResult,
    pub reason: ReviewReason,
    pub dry_run: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let own = registry.sub_registry_with_prefix("asya_webhook");
        let durations: Family<Labels<1>, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATIONS));
        for path in EndpointPath::ALL {
            drop(durations.get_or_create(&[("path", path.label())]));
        }
        Self {
            reviews: add(
                own,
                "reviews",
                "Reviews by path, operation, result and reason",
            ),
            durations: register(
                own,
                "review_duration_seconds",
                "Time from the end of a review's headers to its response",
                durations,
            ),
            review_bytes: register(
                own,
                "review_bytes",
                "Size of reviews",
                Histogram::new(SIZES),
            ),
            patch_bytes: register(own, "patch_bytes", "Size of patches", Histogram::new(SIZES)),
            in_flight: add(own, "in_flight", "Reviews in flight"),
            reflector_age: add(
                own,
                "reflector_age_seconds",
                "Time since the API server last responded to the watch of AsyncActors; -1 before the first list",
            ),
            cert_expiry: add(
                own,
                "cert_expiry_seconds",
                "Time until the served certificate (leaf) or its CA (ca) expires",
            ),
            cert_reloads: add(
                own,
                "cert_reloads",
                "Certificate reloads from the Secret, by result",
            ),
            connections: add(own, "connections", "Open connections of clients"),
            connections_closed: add(
                own,
                "connections_closed",
                "Connections closed to protect others: Evicted (to make room), Refused (no room for this client), \
                 Overdue (no complete request in time)",
            ),
            registry,
            gauges: Gauges::default(),
        }
    }

    /// Counts a review as in flight until the guard is dropped, and times it.
    pub fn begin(self: &Arc<Self>, path: EndpointPath) -> InFlight {
        self.in_flight.inc();
        InFlight {
            metrics: Arc::clone(self),
            path,
            started: Instant::now(),
        }
    }

    /// Counts a completed review.
    pub fn reviewed(&self, review: &ReviewLabels) {
        let labels = [
            ("path", review.path.label()),
            ("operation", review.operation),
            ("result", review.result.as_str()),
            ("reason", review.reason.as_str()),
            ("dry_run", if review.dry_run { "true" } else { "false" }),
        ];
        self.reviews.get_or_create(&labels).inc();
    }

    /// Observes the size of a review's body.
    pub fn review_bytes(&self, bytes: usize) {
        self.review_bytes.observe(size(bytes));
    }

    /// Observes the size of a patch.
    pub fn patch_bytes(&self, bytes: usize) {
        self.patch_bytes.observe(size(bytes));
    }

    /// Sets the time since the API server last responded; `None` before its first response.
    pub fn reflector_age(&self, age: Option<Duration>) {
        let seconds = age.map_or(-1, |age| i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        self.reflector_age.set(seconds);
    }

    /// Updates the metrics of the served certificate.
    pub fn certificates(&self, certificate: &CertificateMetrics, now: Timestamp) {
        for (kind, expires) in [
            ("leaf", certificate.leaf_expires),
            ("ca", certificate.ca_expires),
        ] {
            if let Some(expires) = expires {
                let seconds = expires.as_second() - now.as_second();
                self.cert_expiry
                    .get_or_create(&[("kind", kind)])
                    .set(seconds);
            }
        }
        for (result, count) in [
            ("served", certificate.swapped),
            ("refused", certificate.refused),
        ] {
            let counter = self.cert_reloads.get_or_create(&[("result", result)]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Updates the connection metrics.
    pub fn connections(&self, count: Count) {
        self.connections
            .set(i64::try_from(count.open).unwrap_or(i64::MAX));
        for (reason, count) in [
            ("Evicted", count.evicted),
            ("Refused", count.refused),
            ("Overdue", count.overdue),
        ] {
            let counter = self.connections_closed.get_or_create(&[("reason", reason)]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}

impl ExposedMetrics for Metrics {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn gauges(&self) -> &Gauges<Self> {
        &self.gauges
    }
}

/// Guard of an in-flight review.
pub struct InFlight {
    metrics: Arc<Metrics>,
    path: EndpointPath,
    started: Instant,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics
            .durations
            .get_or_create(&[("path", self.path.label())])
            .observe(self.started.elapsed().as_secs_f64());
    }
}

/// Exact for every possible size.
#[expect(clippy::cast_precision_loss, reason = "a body has at most 8 MiB")]
fn size(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests;
