//! How soon each fault is retried (docs/architecture.md, section 7).

use std::time::Duration;

/// When to reconcile again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// On the next event or resync: the spec, the configuration or another object must change first.
    AwaitChange,
    /// After 30 s to 5 min, because no event is expected.
    SlowBackoff,
    /// After 1 s to 5 min, for a transient failure.
    Backoff,
    /// Immediately, because stale data was read.
    Now,
    After(Duration),
    /// With backoff, but no later than after this time, because something else is due then.
    BackoffOrAfter(BackoffKind, Duration),
}

/// How soon a failure is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackoffKind {
    /// As [`Requeue::Backoff`].
    Backoff,
    /// As [`Requeue::SlowBackoff`].
    SlowBackoff,
}

impl Requeue {
    /// Combines both: the more urgent backoff and the earlier timer, because either may come first.
    pub fn sooner(self, other: Self) -> Self {
        if self == Self::Now || other == Self::Now {
            return Self::Now;
        }
        let failure = first(self.backoff(), other.backoff());
        match (failure, first(self.timer(), other.timer())) {
            (Some(failure), Some(timer)) => Self::BackoffOrAfter(failure, timer),
            (Some(BackoffKind::Backoff), None) => Self::Backoff,
            (Some(BackoffKind::SlowBackoff), None) => Self::SlowBackoff,
            (None, Some(timer)) => Self::After(timer),
            (None, None) => Self::AwaitChange,
        }
    }

    /// The backoff of the retry, if this is a retry of a failure (FW-6).
    pub fn backoff(self) -> Option<BackoffKind> {
        match self {
            Self::Backoff => Some(BackoffKind::Backoff),
            Self::SlowBackoff => Some(BackoffKind::SlowBackoff),
            Self::BackoffOrAfter(failure, _) => Some(failure),
            Self::AwaitChange | Self::Now | Self::After(_) => None,
        }
    }

    fn timer(self) -> Option<Duration> {
        match self {
            Self::After(delay) | Self::BackoffOrAfter(_, delay) => Some(delay),
            Self::AwaitChange | Self::Now | Self::Backoff | Self::SlowBackoff => None,
        }
    }
}

fn first<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FW-7, FW-32
    #[test]
    fn combined_requeues_keep_both_the_retry_and_the_timer() {
        let after = |seconds| Requeue::After(Duration::from_secs(seconds));
        let failed =
            |failure, seconds| Requeue::BackoffOrAfter(failure, Duration::from_secs(seconds));
        let fast = BackoffKind::Backoff;
        let slow = BackoffKind::SlowBackoff;
        let rows = [
            (Requeue::AwaitChange, after(60), after(60)),
            (after(60), after(5), after(5)),
            (Requeue::Backoff, Requeue::SlowBackoff, Requeue::Backoff),
            (
                Requeue::SlowBackoff,
                Requeue::AwaitChange,
                Requeue::SlowBackoff,
            ),
            (Requeue::SlowBackoff, after(60), failed(slow, 60)),
            (Requeue::SlowBackoff, after(5), failed(slow, 5)),
            (Requeue::Backoff, after(60), failed(fast, 60)),
            (failed(slow, 60), Requeue::Backoff, failed(fast, 60)),
            (failed(slow, 60), after(40), failed(slow, 40)),
            (failed(fast, 60), failed(slow, 40), failed(fast, 40)),
            (failed(fast, 60), Requeue::Now, Requeue::Now),
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
