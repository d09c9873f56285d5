//! Metrics with the former sidecar's names, labels and buckets (SC-91 to SC-93).

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
    Connection, Destination, Direction, Failed, Processed, Queue, Received, Report, RuntimeError,
    Sent, Why,
};
use crate::decide::{Fault, Kind, Reason, Verdict};

/// Routes are user input: after so many destinations the rest is `other` (SC-92).
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

/// All metrics.
pub struct Metrics {
    registry: Registry,
    queue: Queue,
    transport: &'static str,
    destinations: Mutex<HashSet<String>>,
    received: Family<Received, Counter>,
    processed: Family<Processed, Counter>,
    sent: Family<Sent, Counter>,
    failed: Family<Failed, Counter>,
    /// Messages that are being worked on.
    pub active: Gauge,
    processing: Histograms<Queue>,
    calls: Histograms<Queue>,
    receiving: Histograms<Received>,
    sending: Histograms<Destination>,
    sizes: Histograms<Direction>,
    runtime_errors: Family<RuntimeError, Counter>,
    given_back: Family<Why, Counter>,
    redelivered: Counter,
    /// Whether the runtime takes messages.
    pub runtime_ready: Gauge,
    /// How many requests may be open at the runtime.
    pub slots: Gauge,
    /// Messages that wait here.
    pub waiting: Gauge,
    /// Age of the oldest message in flight.
    pub oldest_in_flight: Gauge<f64, AtomicU64>,
    reports: Family<Report, Counter>,
    /// Those of the broker.
    pub broker: BrokerMetrics,
}

/// Metrics of the broker's client.
#[derive(Clone, Default)]
pub struct BrokerMetrics {
    connected: Family<Connection, Gauge>,
    /// Whether the broker takes no publications for now.
    pub blocked: Gauge,
    /// Connections that were opened again.
    pub reconnects: Counter,
    extended: Family<Why, Counter>,
    /// Leases that ended before their message was done.
    pub leases_lost: Counter,
}

impl BrokerMetrics {
    /// Whether a connection is there.
    pub fn set_connected(&self, connection: &'static str, connected: bool) {
        self.connected
            .get_or_create(&Connection { connection })
            .set(connected.into());
    }

    /// So many leases were extended, or could not be.
    pub fn extended(&self, count: usize, succeeded: bool) {
        let reason = if succeeded { "success" } else { "error" };
        self.extended
            .get_or_create(&Why { reason })
            .inc_by(count as u64);
    }
}

impl Metrics {
    /// Metrics of an actor, with this prefix.
    #[must_use]
    pub fn new(prefix: &str, actor: &str, transport: &'static str) -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::with_prefix(prefix),
            queue: Queue {
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
            given_back: Family::default(),
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
        Arc::new(metrics)
    }

    /// Those of the former sidecar (SC-91).
    fn register(&mut self) {
        let all = &mut self.registry;
        all.register(
            "messages_received",
            "Messages received from the queue",
            self.received.clone(),
        );
        all.register(
            "messages_processed",
            "Messages that were processed",
            self.processed.clone(),
        );
        all.register(
            "messages_sent",
            "Messages sent to queues",
            self.sent.clone(),
        );
        all.register(
            "messages_failed",
            "Messages that failed",
            self.failed.clone(),
        );
        all.register(
            "active_messages",
            "Messages that are being worked on",
            self.active.clone(),
        );
        let help = "Time from a message's receipt until all that came of it was stored";
        all.register("processing_duration_seconds", help, self.processing.clone());
        all.register(
            "runtime_execution_duration_seconds",
            "Time that the runtime took",
            self.calls.clone(),
        );
        all.register(
            "queue_receive_duration_seconds",
            "Time that a free slot waited",
            self.receiving.clone(),
        );
        let help = "Time to send a message, with its confirmation";
        all.register("queue_send_duration_seconds", help, self.sending.clone());
        all.register(
            "envelope_size_bytes",
            "Size of messages",
            self.sizes.clone(),
        );
        all.register(
            "runtime_errors",
            "Errors of the runtime",
            self.runtime_errors.clone(),
        );
    }

    /// Those that the former sidecar did not have (SC-93).
    fn register_new(&mut self) {
        let all = &mut self.registry;
        all.register(
            "given_back",
            "Messages given back to the queue",
            self.given_back.clone(),
        );
        all.register(
            "redelivered",
            "Messages that came again",
            self.redelivered.clone(),
        );
        all.register(
            "runtime_ready",
            "Whether the runtime takes messages",
            self.runtime_ready.clone(),
        );
        all.register(
            "slots",
            "Requests that may be open at the runtime",
            self.slots.clone(),
        );
        all.register(
            "waiting_messages",
            "Messages that wait in the sidecar",
            self.waiting.clone(),
        );
        let help = "Age of the oldest message that is not settled";
        all.register(
            "oldest_in_flight_seconds",
            help,
            self.oldest_in_flight.clone(),
        );
        all.register("reports", "Reports to the gateway", self.reports.clone());
        let broker = self.broker.clone();
        all.register(
            "broker_connected",
            "Whether a connection is open",
            broker.connected,
        );
        all.register(
            "broker_blocked",
            "Whether the broker takes no publications",
            broker.blocked,
        );
        all.register(
            "broker_reconnects",
            "Connections that were opened again",
            broker.reconnects,
        );
        all.register(
            "leases_extended",
            "Visibility timeouts that were extended",
            broker.extended,
        );
        all.register(
            "leases_lost",
            "Visibility timeouts that ended too early",
            broker.leases_lost,
        );
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "The program", build);
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// When a value cannot be encoded.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// A message came.
    pub fn received(&self, bytes: usize, came_again: bool) {
        self.received.get_or_create(&self.here()).inc();
        self.sizes
            .get_or_create(&Direction {
                direction: "received",
            })
            .observe(float(bytes));
        if came_again {
            self.redelivered.inc();
        }
    }

    /// A slot was free for so long before a message came.
    pub fn waited(&self, time: Duration) {
        self.receiving
            .get_or_create(&self.here())
            .observe(time.as_secs_f64());
    }

    /// A call of the runtime took so long.
    pub fn called(&self, time: Duration) {
        self.calls
            .get_or_create(&self.queue)
            .observe(time.as_secs_f64());
    }

    /// A message is stored. `actor` and `queue` are those of its destination.
    pub fn sent(&self, kind: Kind, actor: &str, queue: &str, bytes: usize, time: Duration) {
        let message_type = match kind {
            Kind::Routing => "routing",
            Kind::HappyEnd => "happy_end",
            Kind::ErrorEnd => "error_end",
        };
        let destination_queue = self.destination(if kind == Kind::Routing { queue } else { actor });
        let destination = Destination {
            destination_queue: destination_queue.clone(),
            transport: self.transport,
        };
        self.sending
            .get_or_create(&destination)
            .observe(time.as_secs_f64());
        self.sent
            .get_or_create(&Sent {
                destination_queue,
                message_type,
            })
            .inc();
        self.sizes
            .get_or_create(&Direction { direction: "sent" })
            .observe(float(bytes));
    }

    /// A message has ended, so long after it came.
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
            .get_or_create(&Processed {
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
            .get_or_create(&Failed {
                queue: queue(),
                reason: fault.reason,
            })
            .inc();
        if let Some(error_type) = fault.runtime {
            self.runtime_errors
                .get_or_create(&RuntimeError {
                    queue: queue(),
                    error_type,
                })
                .inc();
        }
    }

    /// What came of a message could not be stored.
    pub fn not_stored(&self, reason: &'static str) {
        self.failed
            .get_or_create(&Failed {
                queue: self.queue.queue.clone(),
                reason,
            })
            .inc();
    }

    /// The runtime did not read a message.
    pub fn not_read(&self) {
        let error = RuntimeError {
            queue: self.queue.queue.clone(),
            error_type: "not_read",
        };
        self.runtime_errors.get_or_create(&error).inc();
    }

    /// A message is given back.
    pub fn given_back(&self, reason: Reason) {
        let reason = match reason {
            Reason::NotRead => "not_read",
            Reason::Crashed => "runtime_crashed",
            Reason::NotStored => "not_stored",
            Reason::Shutdown => "shutdown",
            Reason::Waited => "waited",
            Reason::Panicked => "panicked",
        };
        self.given_back.get_or_create(&Why { reason }).inc();
    }

    /// What came of a report to the gateway.
    pub fn reported(&self, kind: &'static str, result: &'static str) {
        self.reports.get_or_create(&Report { kind, result }).inc();
    }

    fn here(&self) -> Received {
        Received {
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

/// Sizes are far below the numbers that a float cannot hold.
#[expect(clippy::cast_precision_loss, reason = "bytes of a message")]
fn float(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests;
