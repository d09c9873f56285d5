//! Metric labels. `queue` is the actor's name, as in the Go sidecar.

use prometheus_client::encoding::EncodeLabelSet;

/// Labels of per-actor metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabels {
    /// The actor.
    pub queue: String,
}

/// Labels of received messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReceivedLabels {
    /// The actor.
    pub queue: String,
    /// The broker type.
    pub transport: &'static str,
}

/// Labels of processed messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ProcessedLabels {
    /// The actor.
    pub queue: String,
    /// `success`, `empty_response`, `end_consumed` or `error`.
    pub status: &'static str,
}

/// Labels of failed messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailedLabels {
    /// The actor.
    pub queue: String,
    /// The code of the error (see below).
    pub reason: &'static str,
}

/// Labels of sent messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SentLabels {
    /// The queue of a routed message, otherwise the end actor.
    pub destination_queue: String,
    /// `routing`, `happy_end` or `error_end`.
    pub message_type: &'static str,
}

/// Labels of publish durations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DestinationLabels {
    /// The queue of a routed message, otherwise the end actor.
    pub destination_queue: String,
    /// The broker type.
    pub transport: &'static str,
}

/// Labels of message sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DirectionLabels {
    /// `received` or `sent`.
    pub direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RuntimeErrorLabels {
    /// The actor.
    pub queue: String,
    /// `timeout`, `execution_error`, `invalid_reply`, `crashed` or `not_read`.
    pub error_type: &'static str,
}

/// Labels of requeued messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequeuedLabels {
    /// `not_read`, `runtime_crashed`, `other_timed_out`, `not_stored`, `not_reported`, `shutdown`, `timed_out`,
    /// `waited` or `panicked`.
    pub reason: &'static str,
}

/// Labels of lease extensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExtensionLabels {
    /// `success` or `error`.
    pub result: &'static str,
}

/// Labels of broker connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ConnectionLabels {
    /// `consume` or `publish`; on SQS `receive`.
    pub connection: &'static str,
}

/// Labels of gateway reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReportLabels {
    /// `progress`, `child` or `final`.
    pub kind: &'static str,
    /// `success`, `refused`, `error` or `dropped`.
    pub result: &'static str,
}
