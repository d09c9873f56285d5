//! Metrics, compatible with the Go sidecar in names, labels and buckets (SC-91 to SC-93).

mod labels;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use self::labels::{
    ConnectionLabels, DestinationLabels, DirectionLabels, ExtensionLabels, FailedLabels,
    ProcessedLabels, QueueLabels, ReceivedLabels, ReportLabels, RequeuedLabels, RuntimeErrorLabels,
    SentLabels,
};
use crate::decide::{Fault, Kind, Reason, Verdict};

/// Bounds the cardinality of destinations, which are user input: others are counted as `other` (SC-92).
const MOST_DESTINATIONS: usize = 100;

const CALLS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];
const RECEIVING: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0,
];
const SENDING: [f64; 11] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0,
];
const SIZES: [f64; 8] = [1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct Metrics {
    registry: Registry,
    queue: QueueLabels,
    transport: &'static str,
    destinations: Mutex<HashSet<String>>,
    received: Family<ReceivedLabels, Counter>,
    processed: Family<ProcessedLabels, Counter>,
    sent: Family<SentLabels, Counter>,
    failed: Family<FailedLabels, Counter>,
    /// Messages being processed.
    pub active: Gauge,
    processing: Histograms<QueueLabels>,
    calls: Histograms<QueueLabels>,
    receiving: Histograms<ReceivedLabels>,
    sending: Histograms<DestinationLabels>,
    sizes: Histograms<DirectionLabels>,
    runtime_errors: Family<RuntimeErrorLabels, Counter>,
    requeued: Family<RequeuedLabels, Counter>,
    redelivered: Counter,
    pub runtime_ready: Gauge,
    /// Maximum open requests at the runtime.
    pub slots: Gauge,
    /// Prefetched messages that wait for a slot.
    pub waiting: Gauge,
    /// Age of the oldest message in flight.
    pub oldest_in_flight: Gauge<f64, AtomicU64>,
    reports: Family<ReportLabels, Counter>,
    /// Metrics of the broker client.
    pub broker: BrokerMetrics,
}

/// Metrics of the broker client.
#[derive(Clone, Default)]
pub struct BrokerMetrics {
    connected: Family<ConnectionLabels, Gauge>,
    /// Whether the broker blocks publishing.
    pub blocked: Gauge,
    /// Reconnects to the broker.
    pub reconnects: Counter,
    extended: Family<ExtensionLabels, Counter>,
    /// Visibility timeouts that expired before the message was settled.
    pub leases_lost: Counter,
}

impl BrokerMetrics {
    /// Sets whether a connection is open.
    pub fn set_connected(&self, connection: &'static str, connected: bool) {
        self.connected
            .get_or_create(&ConnectionLabels { connection })
            .set(connected.into());
    }

    /// Counts lease extensions by their result.
    pub fn extended(&self, count: usize, succeeded: bool) {
        let result = if succeeded { "success" } else { "error" };
        self.extended
            .get_or_create(&ExtensionLabels { result })
            .inc_by(count as u64);
    }
}

impl Metrics {
    /// Creates the metrics of an actor, with a name prefix.
    #[must_use]
    pub fn new(prefix: &str, actor: &str, transport: &'static str) -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::with_prefix(prefix),
            queue: QueueLabels {
                queue: actor.to_owned(),
            },
            transport,
            destinations: Mutex::default(),
            received: Family::default(),
            processed: Family::default(),
            sent: Family::default(),
            failed: Family::default(),
            active: Gauge::default(),
            processing: Family::new_with_constructor(|| Histogram::new(CALLS)),
            calls: Family::new_with_constructor(|| Histogram::new(CALLS)),
            receiving: Family::new_with_constructor(|| Histogram::new(RECEIVING)),
            sending: Family::new_with_constructor(|| Histogram::new(SENDING)),
            sizes: Family::new_with_constructor(|| Histogram::new(SIZES)),
            runtime_errors: Family::default(),
            requeued: Family::default(),
            redelivered: Counter::default(),
            runtime_ready: Gauge::default(),
            slots: Gauge::default(),
            waiting: Gauge::default(),
            oldest_in_flight: Gauge::default(),
            reports: Family::default(),
            broker: BrokerMetrics::default(),
        };
        metrics.register();
        metrics.register_new();
        metrics.register_broker();
        Arc::new(metrics)
    }

    /// Metrics that the Go sidecar had (SC-91).
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register(
            "messages_received",
            "Messages received from the queue",
            self.received.clone(),
        );
        all.register(
            "messages_processed",
            "Messages processed, by result",
            self.processed.clone(),
        );
        all.register(
            "messages_sent",
            "Messages sent to queues",
            self.sent.clone(),
        );
        all.register(
            "messages_failed",
            "Messages that failed, by reason",
            self.failed.clone(),
        );
        all.register(
            "active_messages",
            "Messages currently being processed",
            self.active.clone(),
        );
        let help =
            "Time from delivery of a message until its results were confirmed and it was settled";
        all.register("processing_duration_seconds", help, self.processing.clone());
        all.register(
            "runtime_execution_duration_seconds",
            "Duration of runtime calls",
            self.calls.clone(),
        );
        all.register(
            "queue_receive_duration_seconds",
            "Time a free slot waited for a message",
            self.receiving.clone(),
        );
        let help = "Time to publish a message, including the publisher confirm";
        all.register("queue_send_duration_seconds", help, self.sending.clone());
        all.register(
            "envelope_size_bytes",
            "Message size in bytes",
            self.sizes.clone(),
        );
        all.register(
            "runtime_errors",
            "Runtime errors, by type",
            self.runtime_errors.clone(),
        );
    }

    /// Metrics that the Go sidecar did not have (SC-93).
    fn register_new(&mut self) {
        let all = &mut self.registry;
        all.register(
            "given_back",
            "Messages requeued, by reason",
            self.requeued.clone(),
        );
        all.register(
            "redelivered",
            "Messages received that had been delivered before",
            self.redelivered.clone(),
        );
        all.register(
            "runtime_ready",
            "Whether the runtime is ready",
            self.runtime_ready.clone(),
        );
        all.register(
            "slots",
            "Maximum number of concurrent requests to the runtime",
            self.slots.clone(),
        );
        all.register(
            "waiting_messages",
            "Prefetched messages waiting for a slot",
            self.waiting.clone(),
        );
        let help = "Age of the oldest unsettled message";
        all.register(
            "oldest_in_flight_seconds",
            help,
            self.oldest_in_flight.clone(),
        );
        all.register(
            "reports",
            "Reports to the gateway, by kind and result",
            self.reports.clone(),
        );
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "Build information", build);
    }

    /// Metrics of the broker client (SC-93).
    fn register_broker(&mut self) {
        let all = &mut self.registry;
        let broker = self.broker.clone();
        all.register(
            "broker_connected",
            "Whether the broker connection is open",
            broker.connected,
        );
        all.register(
            "broker_blocked",
            "Whether the broker blocks publishing",
            broker.blocked,
        );
        all.register(
            "broker_reconnects",
            "Reconnects to the broker",
            broker.reconnects,
        );
        all.register(
            "leases_extended",
            "Visibility timeout extensions, by result",
            broker.extended,
        );
        all.register(
            "leases_lost",
            "Visibility timeouts that expired before the message was settled",
            broker.leases_lost,
        );
    }

    /// Encodes all metrics as text.
    ///
    /// # Errors
    /// When a value cannot be encoded.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// Counts a delivered message.
    pub fn received(&self, bytes: usize, redelivered: bool) {
        self.received.get_or_create(&self.here()).inc();
        self.sizes
            .get_or_create(&DirectionLabels {
                direction: "received",
            })
            .observe(float(bytes));
        if redelivered {
            self.redelivered.inc();
        }
    }

    /// Observes how long a free slot waited for a message.
    pub fn waited(&self, time: Duration) {
        self.receiving
            .get_or_create(&self.here())
            .observe(time.as_secs_f64());
    }

    /// Observes the duration of a runtime call.
    pub fn called(&self, time: Duration) {
        self.calls
            .get_or_create(&self.queue)
            .observe(time.as_secs_f64());
    }

    /// Counts a confirmed publication. `actor` and `queue` are its destination.
    pub fn sent(&self, kind: Kind, actor: &str, queue: &str, bytes: usize, time: Duration) {
        let message_type = match kind {
            Kind::Routing => "routing",
            Kind::HappyEnd => "happy_end",
            Kind::ErrorEnd => "error_end",
        };
        let destination_queue = self.destination(if kind == Kind::Routing { queue } else { actor });
        let destination = DestinationLabels {
            destination_queue: destination_queue.clone(),
            transport: self.transport,
        };
        self.sending
            .get_or_create(&destination)
            .observe(time.as_secs_f64());
        self.sent
            .get_or_create(&SentLabels {
                destination_queue,
                message_type,
            })
            .inc();
        self.sizes
            .get_or_create(&DirectionLabels { direction: "sent" })
            .observe(float(bytes));
    }

    /// Counts a settled message, `time` after its delivery.
    pub fn ended(&self, verdict: &Verdict, time: Duration) {
        let status = match verdict {
            Verdict::Open => return,
            Verdict::Success => "success",
            Verdict::EmptyResponse => "empty_response",
            Verdict::EndConsumed => "end_consumed",
            Verdict::Failed(fault) => {
                self.failed(fault);
                "error"
            }
        };
        self.processed
            .get_or_create(&ProcessedLabels {
                queue: self.queue.queue.clone(),
                status,
            })
            .inc();
        self.processing
            .get_or_create(&self.queue)
            .observe(time.as_secs_f64());
    }

    fn failed(&self, fault: &Fault) {
        let queue = || self.queue.queue.clone();
        self.failed
            .get_or_create(&FailedLabels {
                queue: queue(),
                reason: fault.reason,
            })
            .inc();
        if let Some(error_type) = fault.runtime {
            self.runtime_errors
                .get_or_create(&RuntimeErrorLabels {
                    queue: queue(),
                    error_type,
                })
                .inc();
        }
    }

    /// Counts a message whose results could not be published.
    pub fn publish_failed(&self, reason: &'static str) {
        self.failed
            .get_or_create(&FailedLabels {
                queue: self.queue.queue.clone(),
                reason,
            })
            .inc();
    }

    /// Counts a message that the runtime did not read.
    pub fn not_read(&self) {
        let error = RuntimeErrorLabels {
            queue: self.queue.queue.clone(),
            error_type: "not_read",
        };
        self.runtime_errors.get_or_create(&error).inc();
    }

    /// Counts a requeued message.
    pub fn requeued(&self, reason: Reason) {
        let reason = match reason {
            Reason::NotRead => "not_read",
            Reason::RuntimeCrashed => "runtime_crashed",
            Reason::OtherTimedOut => "other_timed_out",
            Reason::NotStored => "not_stored",
            Reason::NotReported => "not_reported",
            Reason::Shutdown => "shutdown",
            Reason::TimedOut => "timed_out",
            Reason::Waited => "waited",
            Reason::Panicked => "panicked",
        };
        self.requeued
            .get_or_create(&RequeuedLabels { reason })
            .inc();
    }

    /// Counts a gateway report by its result.
    pub fn reported(&self, kind: &'static str, result: &'static str) {
        self.reports
            .get_or_create(&ReportLabels { kind, result })
            .inc();
    }

    fn here(&self) -> ReceivedLabels {
        ReceivedLabels {
            queue: self.queue.queue.clone(),
            transport: self.transport,
        }
    }

    fn destination(&self, name: &str) -> String {
        let mut known = self.destinations.lock();
        if !known.contains(name) {
            if known.len() >= MOST_DESTINATIONS {
                return "other".to_owned();
            }
            known.insert(name.to_owned());
        }
        name.to_owned()
    }
}

/// Message sizes are far below the integers that a float cannot represent exactly.
#[expect(clippy::cast_precision_loss, reason = "bytes of a message")]
fn float(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests;
