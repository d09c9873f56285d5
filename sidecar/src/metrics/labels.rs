//! Labels of the metrics. `queue` is the actor's name, as it was in the former sidecar.

use prometheus_client::encoding::EncodeLabelSet;

/// Of what is counted per actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Queue {
    /// The actor.
    pub queue: String,
}

/// Of received messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Received {
    /// The actor.
    pub queue: String,
    /// The type of the broker.
    pub transport: &'static str,
}

/// Of messages that have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Processed {
    /// The actor.
    pub queue: String,
    /// How they ended.
    pub status: &'static str,
}

/// Of failed messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Failed {
    /// The actor.
    pub queue: String,
    /// Why.
    pub reason: &'static str,
}

/// Of sent messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Sent {
    /// The queue of a routed message, else the end actor.
    pub destination_queue: String,
    /// What it was sent as.
    pub message_type: &'static str,
}

/// Of the time to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Destination {
    /// As in [`Sent`].
    pub destination_queue: String,
    /// The type of the broker.
    pub transport: &'static str,
}

/// Of sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Direction {
    /// `received` or `sent`.
    pub direction: &'static str,
}

/// Of errors of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RuntimeError {
    /// The actor.
    pub queue: String,
    /// The kind of error.
    pub error_type: &'static str,
}

/// Of what has a reason or a result alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Why {
    /// The reason.
    pub reason: &'static str,
}

/// Of connections to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Connection {
    /// What it is for.
    pub connection: &'static str,
}

/// Of reports to the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Report {
    /// Which report.
    pub kind: &'static str,
    /// What came of it.
    pub result: &'static str,
}
