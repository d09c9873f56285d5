//! Reasons of conditions, and how soon each deserves another look (design, "When to look again").

use std::fmt;
use std::time::Duration;

/// Why a condition has its status. The name is the text that users see; docs/spec/standalone.md
/// and docs/spec/binding.md
/// explain each.
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
    QueueNotEmpty,
    QueueDraining,
    // WorkloadReady
    ValidationError,
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
    /// An autoscaler of the user's decides the number of pods, as it may.
    ScaledByOther,
    QueueURLUnknown,
    ScalingNotSupported,
    // TargetResolved
    Resolved,
    TargetNotFound,
    TargetNotReady,
    /// Its user has stopped it.
    TargetStopped,
    KindNotInstalled,
    KindForbidden,
    UnsupportedTarget,
    AlreadyBound,
    CrossNamespace,
    NamespaceExcluded,
    Ambiguous,
    // Injected
    AllPodsInjected,
    PodsNotInjected,
    RolloutInProgress,
    RolloutWaiting,
    RolloutHalted,
    ProbeFailed,
    ProbeRejected,
    TargetURLUnknown,
    WebhookNotReady,
    SpecConflict,
    StrategyNotAllowed,
    NotProven,
    // Conflict
    NoConflict,
    BindingConflict,
    FieldConflict,
    // Any of the above, after the last attempt
    RetriesExhausted,
    // Ready
    AllReady,
    Paused,
    Terminating,
    UnbindBlocked,
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
    pub retry: Requeue,
}

/// When to look again after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// A watch will wake us: the spec, the configuration or another object must change.
    AwaitChange,
    /// Nothing will wake us: 30 s to 5 min.
    SlowBackoff,
    /// It may pass: 1 s to 5 min.
    Backoff,
    /// Our view was old: at once.
    Now,
    /// The answer itself said when.
    After(Duration),
    /// One thing failed, and another must be looked at after this time at the latest.
    FailedAnd(Failure, Duration),
}

/// How soon it is tried again what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// As [`Requeue::Backoff`].
    Backoff,
    /// As [`Requeue::SlowBackoff`].
    SlowBackoff,
}

impl Requeue {
    /// What does justice to both: what failed more pressingly is tried again, and the first timer is kept,
    /// for nobody knows yet which of them comes first.
    pub fn sooner(self, other: Self) -> Self {
        if self == Self::Now || other == Self::Now {
            return Self::Now;
        }
        let failure = first(self.failure(), other.failure());
        match (failure, first(self.timer(), other.timer())) {
            (Some(failure), Some(timer)) => Self::FailedAnd(failure, timer),
            (Some(Failure::Backoff), None) => Self::Backoff,
            (Some(Failure::SlowBackoff), None) => Self::SlowBackoff,
            (None, Some(timer)) => Self::After(timer),
            (None, None) => Self::AwaitChange,
        }
    }

    /// Whether it is another attempt at what failed (FW-6).
    pub fn failure(self) -> Option<Failure> {
        match self {
            Self::Backoff => Some(Failure::Backoff),
            Self::SlowBackoff => Some(Failure::SlowBackoff),
            Self::FailedAnd(failure, _) => Some(failure),
            Self::AwaitChange | Self::Now | Self::After(_) => None,
        }
    }

    fn timer(self) -> Option<Duration> {
        match self {
            Self::After(delay) | Self::FailedAnd(_, delay) => Some(delay),
            Self::AwaitChange | Self::Now | Self::Backoff | Self::SlowBackoff => None,
        }
    }
}

fn first<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

impl Fault {
    /// A fault that only a change of the actor, the configuration or another object ends.
    pub fn until_change(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry: Requeue::AwaitChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FW-7, FW-32
    #[test]
    fn of_two_reasons_to_look_again_neither_hides_the_other() {
        let after = |seconds| Requeue::After(Duration::from_secs(seconds));
        let failed = |failure, seconds| Requeue::FailedAnd(failure, Duration::from_secs(seconds));
        let (soon, slowly) = (Failure::Backoff, Failure::SlowBackoff);
        let rows = [
            (Requeue::AwaitChange, after(60), after(60)),
            (after(60), after(5), after(5)),
            (Requeue::Backoff, Requeue::SlowBackoff, Requeue::Backoff),
            (
                Requeue::SlowBackoff,
                Requeue::AwaitChange,
                Requeue::SlowBackoff,
            ),
            (Requeue::SlowBackoff, after(60), failed(slowly, 60)),
            (Requeue::SlowBackoff, after(5), failed(slowly, 5)),
            (Requeue::Backoff, after(60), failed(soon, 60)),
            (failed(slowly, 60), Requeue::Backoff, failed(soon, 60)),
            (failed(slowly, 60), after(40), failed(slowly, 40)),
            (failed(soon, 60), failed(slowly, 40), failed(soon, 40)),
            (failed(soon, 60), Requeue::Now, Requeue::Now),
            (Requeue::Now, Requeue::AwaitChange, Requeue::Now),
            (
                Requeue::AwaitChange,
                Requeue::AwaitChange,
                Requeue::AwaitChange,
            ),
        ];
        for (one, other, both) in rows {
            assert_eq!(one.sooner(other), both, "{one:?} and {other:?}");
            assert_eq!(other.sooner(one), both, "{other:?} and {one:?}");
        }
    }
}
