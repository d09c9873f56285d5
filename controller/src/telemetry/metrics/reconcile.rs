//! Metrics of reconciles and of the work queue, named as in Kubernetes' own controllers.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use asya_process::metrics::{ExposedMetrics, add, register};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Metrics, gauge, kind_label};
use crate::work_queue::{Observer, QueueSizes, WorkQueue};

/// In seconds, up to a reconcile that waits for a hanging broker.
const RECONCILE_BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
/// In seconds. A queue that keeps up stays below the first bucket; reconciles of one actor are at least 1 s apart.
const WAIT_BUCKETS: [f64; 9] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];

/// Values of the label `result`, as in `controller-runtime`.
const SUCCESS: &str = "success";
const REQUEUE_AFTER: &str = "requeue_after";
const ERROR: &str = "error";

/// Named as in `controller-runtime`, so that existing dashboards work.
pub(super) struct ReconcileMetrics {
    /// Labels: `result`: `success`, `requeue_after` or `error`.
    ended: Family<[(&'static str, &'static str); 1], Counter>,
    errors: Counter,
    terminal_errors: Counter,
    panics: Counter,
    seconds: Histogram,
    active: Gauge,
}

impl ReconcileMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let time = "controller_runtime_reconcile_time_seconds";
        let seconds = Histogram::new(RECONCILE_BUCKETS);
        let metrics = Self {
            ended: add(
                registry,
                "controller_runtime_reconcile",
                "Reconciles of actors by result",
            ),
            errors: add(
                registry,
                "controller_runtime_reconcile_errors",
                "Failed reconciles",
            ),
            terminal_errors: add(
                registry,
                "controller_runtime_terminal_reconcile_errors",
                "Reconciles that failed on the last attempt: only an event starts the next one",
            ),
            panics: add(
                registry,
                "controller_runtime_reconcile_panics",
                "Reconciles that panicked",
            ),
            seconds: register(registry, time, "Duration of a reconcile", seconds),
            active: add(
                registry,
                "controller_runtime_active_workers",
                "Reconciles in flight",
            ),
        };
        for result in [SUCCESS, REQUEUE_AFTER, ERROR] {
            drop(metrics.ended.get_or_create(&[("result", result)]));
        }
        metrics
    }
}

/// Named as in `client-go`.
pub(super) struct WorkQueueMetrics {
    depth: Gauge,
    waited: Histogram,
    retries: Counter,
}

impl WorkQueueMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let time = "workqueue_queue_duration_seconds";
        let help = "Time from when an actor was due to the start of its reconcile";
        Self {
            depth: add(registry, "workqueue_depth", "Actors waiting for a worker"),
            waited: register(registry, time, help, Histogram::new(WAIT_BUCKETS)),
            retries: add(
                registry,
                "workqueue_retries",
                "Retries of failed reconciles",
            ),
        }
    }
}

impl Metrics {
    /// Starts timing a reconcile.
    #[must_use]
    pub fn start_reconcile(self: &Arc<Self>) -> ReconcileTimer {
        ReconcileTimer {
            metrics: Arc::clone(self),
            started: Instant::now(),
            ended: false,
        }
    }

    /// Counts a failed last attempt (FW-6).
    pub fn retries_exhausted(&self) {
        self.reconciles.terminal_errors.inc();
    }

    /// Refreshes the gauges of this queue before each scrape.
    pub fn watch_queue<K>(&self, queue: &WorkQueue<K>)
    where
        K: Ord + Hash + Clone + Send + Debug + 'static,
    {
        let queue = queue.clone();
        self.before_scrape(move |metrics| metrics.work_queue(queue.sizes()));
    }

    fn work_queue(&self, sizes: QueueSizes) {
        self.reconciles.active.set(gauge(sizes.in_flight));
        self.queue.depth.set(gauge(sizes.ready));
    }
}

impl Observer for Metrics {
    fn started(&self, waited: Duration) {
        self.queue.waited.observe(waited.as_secs_f64());
    }

    fn retried(&self) {
        self.queue.retries.inc();
    }

    fn panicked(&self) {
        self.reconciles.panics.inc();
    }
}

/// A reconcile in flight. It is always timed, and counts as failed if it panics or is cancelled.
pub struct ReconcileTimer {
    metrics: Arc<Metrics>,
    started: Instant,
    ended: bool,
}

impl ReconcileTimer {
    /// Ends the reconcile with nothing to do until an event.
    pub fn succeeded(self) {
        self.end(SUCCESS);
    }

    /// Ends the reconcile without a failure; the actor is requeued.
    pub fn requeued(self) {
        self.end(REQUEUE_AFTER);
    }

    /// Ends the reconcile with an error that is not a fault of the actor.
    pub fn failed(mut self, kind: &str) {
        self.count_failure(kind);
    }

    fn end(mut self, result: &'static str) {
        self.ended = true;
        let ended = &self.metrics.reconciles.ended;
        ended.get_or_create(&[("result", result)]).inc();
    }

    fn count_failure(&mut self, kind: &str) {
        self.ended = true;
        let metrics = &self.metrics;
        metrics
            .reconciles
            .ended
            .get_or_create(&[("result", ERROR)])
            .inc();
        metrics.reconciles.errors.inc();
        metrics
            .reconcile_failures
            .get_or_create(&kind_label(kind))
            .inc();
    }
}

impl Drop for ReconcileTimer {
    fn drop(&mut self) {
        if !self.ended {
            self.count_failure("Unfinished");
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.reconciles.seconds.observe(seconds);
    }
}
