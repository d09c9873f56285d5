//! Reasons of conditions, and how soon each deserves another look (design, "When to look again").

use std::fmt;
use std::time::Duration;

/// Why a condition has its status. The name is the text that users see; docs/spec/standalone.md
/// explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    // TransportReady
    QueueReady,
    TransportValidated,
    InvalidTransport,
    QueueConflict,
    QueueDeletedRecently,
    QueueMissing,
    QueueMismatch,
    QueueConfigInvalid,
    CredentialsMissing,
    BrokerAuthFailed,
    BrokerUnreachable,
    BrokerThrottled,
    QueueDeletionFailed,
    // WorkloadReady
    ValidationError,
    NotServed,
    NotAuthorized,
    ReconcileError,
    NotOwned,
    TransportNotReady,
    ConfigError,
    VolumeError,
    ImagePullError,
    RuntimeError,
    SidecarError,
    WorkloadError,
    PendingResources,
    WorkloadMissing,
    PodsNotReady,
    ProgressDeadlineExceeded,
    PodsReady,
    Progressing,
    RollingOut,
    Scaling,
    ScaledToZero,
    // ScalingReady
    ScaledObjectCreated,
    ScaledObjectReady,
    ScaledObjectNotReady,
    MetricsUnavailable,
    KedaNotInstalled,
    RivalAutoscaler,
    QueueURLUnknown,
    // Any of the above, after the last attempt
    RetriesExhausted,
    // Ready
    AllReady,
    Paused,
    Terminating,
}

impl Reason {
    /// Whether a spec that cannot be acted on is so because of its transport.
    pub fn is_of_transport(self) -> bool {
        matches!(self, Self::InvalidTransport | Self::QueueConflict)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is wrong, for a condition, and when to look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message: what is wrong, where, what to do.
    pub message: String,
    /// When to look again.
    pub retry: Retry,
}

/// When to look again after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// A watch will wake us: the spec, the configuration or another object must change.
    OnChange,
    /// Nothing will wake us: 30 s to 5 min.
    Slowly,
    /// It may pass: 1 s to 5 min.
    Soon,
    /// Our view was old: at once.
    Now,
    /// The answer itself said when.
    After(Duration),
}

impl Retry {
    /// The one of two that comes first.
    pub fn sooner(self, other: Self) -> Self {
        if other.rank() < self.rank() {
            other
        } else {
            self
        }
    }

    /// `Soon` and `Slowly` stand where their first delays do.
    fn rank(self) -> Duration {
        match self {
            Self::Now => Duration::ZERO,
            Self::Soon => Duration::from_secs(1),
            Self::After(delay) => delay,
            Self::Slowly => Duration::from_secs(30),
            Self::OnChange => Duration::MAX,
        }
    }
}

impl Fault {
    /// A fault that only a change of the actor, the configuration or another object ends.
    pub fn until_change(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry: Retry::OnChange,
        }
    }
}
