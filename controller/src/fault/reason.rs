//! Reasons of conditions, and how soon each fault is retried (design, "When to look again").

use std::fmt;
use std::time::Duration;

/// Why a condition has its status. Users see the variant's name; docs/spec/standalone.md and docs/spec/binding.md
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
    /// The user's own autoscaler decides the number of pods, which is allowed.
    ScaledByOther,
    QueueURLUnknown,
    ScalingNotSupported,
    // TargetResolved
    Resolved,
    TargetNotFound,
    TargetNotReady,
    /// The user has stopped it.
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
    /// Whether a spec with this reason is unusable because of its transport.
    pub fn is_of_transport(self) -> bool {
        matches!(self, Self::InvalidTransport | Self::QueueConflict)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is wrong, for a condition, and when to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    /// The condition's message: what is wrong, where, what to do.
    pub message: String,
    pub retry: Requeue,
}

/// When to reconcile again after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// On a watch event: the spec, the configuration or another object must change.
    AwaitChange,
    /// Without an event to wait for: 30 s to 5 min.
    SlowBackoff,
    /// For a transient failure: 1 s to 5 min.
    Backoff,
    /// At once: our view was stale.
    Now,
    /// After the delay that the error itself named.
    After(Duration),
    /// One thing failed, and another must be checked after this time at the latest.
    FailedAnd(Failure, Duration),
}

/// How soon a failure is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// As [`Requeue::Backoff`].
    Backoff,
    /// As [`Requeue::SlowBackoff`].
    SlowBackoff,
}

impl Requeue {
    /// Combines both: the more urgent retry and the earlier timer, because it is not known yet which comes first.
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

    /// The backoff of the retry, if this is a retry of a failure (FW-6).
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
    /// A fault that ends only with a change of the actor, the configuration or another object.
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
    fn combined_requeues_keep_both_the_retry_and_the_timer() {
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
