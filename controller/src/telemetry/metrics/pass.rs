//! Metrics of reconciles and of the work queue, named as in Kubernetes' own controllers.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use asya_process::metrics::{Exposed, add, register};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Metrics, gauge, of};
use crate::work_queue::{Numbers, Observer, WorkQueue};

/// Seconds: finer and coarser than a usual reconcile, up to one that waits for a hanging broker.
const PASS_BUCKETS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
/// Seconds: a queue that keeps up stays below the first; reconciles of one actor are at least 1 s apart.
const WAIT_BUCKETS: [f64; 9] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];

/// Results of a reconcile: nothing to do until an event, requeued, failed.
const SUCCESS: &str = "success";
const REQUEUE_AFTER: &str = "requeue_after";
const ERROR: &str = "error";

/// Named as in Kubernetes' `controller-runtime`, whose dashboards users have.
pub(super) struct Passes {
    /// By `result`, with the values of `controller-runtime`.
    ended: Family<[(&'static str, &'static str); 1], Counter>,
    errors: Counter,
    given_up: Counter,
    panics: Counter,
    seconds: Histogram,
    active: Gauge,
}

impl Passes {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let time = "controller_runtime_reconcile_time_seconds";
        let seconds = Histogram::new(PASS_BUCKETS);
        let passes = Self {
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
            given_up: add(
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
            drop(passes.ended.get_or_create(&[("result", result)]));
        }
        passes
    }
}

/// Named as in Kubernetes' `client-go`.
pub(super) struct Queue {
    depth: Gauge,
    waited: Histogram,
    retries: Counter,
}

impl Queue {
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
    pub fn pass(self: &Arc<Self>) -> Pass {
        Pass {
            metrics: Arc::clone(self),
            started: Instant::now(),
            ended: false,
        }
    }

    /// Counts a failed last attempt (FW-6).
    pub fn gave_up(&self) {
        self.passes.given_up.inc();
    }

    /// Refreshes the gauges of this queue before each scrape.
    pub fn watch_queue<K>(&self, queue: &WorkQueue<K>)
    where
        K: Ord + Hash + Clone + Send + Debug + 'static,
    {
        let queue = queue.clone();
        self.before_scrape(move |metrics| metrics.work_queue(queue.numbers()));
    }

    fn work_queue(&self, numbers: Numbers) {
        self.passes.active.set(gauge(numbers.in_flight));
        self.queue.depth.set(gauge(numbers.ready));
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
        self.passes.panics.inc();
    }
}

/// A reconcile in flight. It is always timed, and counts as failed if it panics or is cancelled.
pub struct Pass {
    metrics: Arc<Metrics>,
    started: Instant,
    ended: bool,
}

impl Pass {
    /// Ends it with nothing to do until an event.
    pub fn succeeded(self) {
        self.end(SUCCESS);
    }

    /// Ends it without a failure; the actor is requeued.
    pub fn looks_again(self) {
        self.end(REQUEUE_AFTER);
    }

    /// Ends it with a failure that is not a state of the actor.
    pub fn failed(mut self, kind: &str) {
        self.count_failure(kind);
    }

    fn end(mut self, result: &'static str) {
        self.ended = true;
        let ended = &self.metrics.passes.ended;
        ended.get_or_create(&[("result", result)]).inc();
    }

    fn count_failure(&mut self, kind: &str) {
        self.ended = true;
        let metrics = &self.metrics;
        metrics
            .passes
            .ended
            .get_or_create(&[("result", ERROR)])
            .inc();
        metrics.passes.errors.inc();
        metrics.pass_failures.get_or_create(&of(kind)).inc();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.ended {
            self.count_failure("Unfinished");
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.passes.seconds.observe(seconds);
    }
}
