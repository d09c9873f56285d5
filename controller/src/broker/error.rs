//! Errors of broker calls.

use std::time::Duration;

use crate::fault::Fenced;
use crate::fault::{Fault, Reason, Requeue};

/// SQS rejects a queue name for 60 s after the queue was deleted.
const DELETED_RECENTLY: Duration = Duration::from_secs(65);
/// Delay when all permits are taken: by then, some calls have ended, or the broker is known to be down. Also the delay
/// before a deletion is confirmed again.
const BUSY: Duration = Duration::from_secs(1);

/// Why a broker call failed.
///
/// Messages carry no request ids, times or counters, so that a repeated error does not change status (QUE-11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// The Secret or its key is missing or empty.
    #[error("{0}")]
    CredentialsMissing(String),
    /// The broker rejects the credentials or denies permission.
    #[error("{0}")]
    AuthFailed(String),
    /// No response: connection refused, unknown host, TLS failure or timeout.
    #[error("{0}")]
    Unreachable(String),
    /// The broker reports that it is overloaded or broken.
    #[error("{0}")]
    Throttled(String),
    /// Same, with the delay that the broker requests.
    #[error("{0}")]
    RetryAfter(String, Duration),
    /// The configuration cannot work until it is changed.
    #[error("{0}")]
    ConfigInvalid(String),
    /// Something that the configuration names is missing or unusable, or the broker rejects the request, and no event
    /// announces when that changes.
    #[error("{0}")]
    PrerequisiteMissing(String),
    /// The queue exists and cannot be changed to its desired state without losing messages.
    #[error("{0}")]
    Mismatch(String),
    /// The queue exists and belongs to another actor or cluster.
    #[error("{0}")]
    QueueNameTaken(String),
    /// A queue of this name was deleted, and the broker does not accept the name again yet.
    #[error("{0}")]
    DeletedRecently(String),
    /// Not called: too many calls are in flight. This says nothing about the actor, so status does not report it.
    #[error("{0}")]
    TooManyCalls(String),
    /// Not called: the broker is slow, and enough reconciles wait for it. Carries the delay before the retry. Status
    /// does not report it either (OPS-22).
    #[error("{0}")]
    TooManyWaiting(String, Duration),
    /// Not called: the broker recently gave no usable answer, and is not called again until this delay has passed
    /// (QUE-9). Carries that error, which says nothing new about the actor's queue (QUE-10).
    #[error("{0}")]
    CircuitOpen(Box<BrokerError>, Duration),
    /// Same, after so many trials in a row without a usable answer that this is an outage, which status reports.
    #[error("{last}")]
    Outage {
        last: Box<BrokerError>,
        /// Time until the next trial.
        wait: Duration,
        /// The number of rounds without a usable answer, which distinguishes the trials of a client.
        rounds: u32,
    },
    /// Not called: what the deletion of a queue relies on has changed, or could not be confirmed in time (QUE-30).
    #[error("{0}")]
    Unconfirmed(String),
    /// This process no longer leads.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

impl BrokerError {
    /// The condition's reason, also used as a metric label.
    pub fn reason(&self) -> Reason {
        match self {
            Self::CircuitOpen(last, _) | Self::Outage { last, .. } => last.reason(),
            Self::CredentialsMissing(_) => Reason::CredentialsMissing,
            Self::AuthFailed(_) => Reason::BrokerAuthFailed,
            Self::Unreachable(_) | Self::Fenced(_) => Reason::BrokerUnreachable,
            Self::Throttled(_)
            | Self::RetryAfter(..)
            | Self::TooManyCalls(_)
            | Self::TooManyWaiting(..)
            | Self::Unconfirmed(_) => Reason::BrokerThrottled,
            Self::ConfigInvalid(_) | Self::PrerequisiteMissing(_) => Reason::QueueConfigInvalid,
            Self::Mismatch(_) => Reason::QueueMismatch,
            Self::QueueNameTaken(_) => Reason::QueueConflict,
            Self::DeletedRecently(_) => Reason::QueueDeletedRecently,
        }
    }

    pub fn requeue(&self) -> Requeue {
        match self {
            // An outage may last for hours: trials are made on behalf of all actors, but not every actor waits for
            // each.
            Self::Unreachable(_) | Self::Throttled(_) | Self::Fenced(_) | Self::Outage { .. } => {
                Requeue::Backoff
            }
            Self::CredentialsMissing(_)
            | Self::AuthFailed(_)
            | Self::PrerequisiteMissing(_)
            | Self::Mismatch(_)
            | Self::QueueNameTaken(_) => Requeue::SlowBackoff,
            Self::ConfigInvalid(_) => Requeue::AwaitChange,
            Self::DeletedRecently(_) => Requeue::After(DELETED_RECENTLY),
            Self::RetryAfter(_, wait)
            | Self::TooManyWaiting(_, wait)
            | Self::CircuitOpen(_, wait) => Requeue::After(*wait),
            Self::TooManyCalls(_) | Self::Unconfirmed(_) => Requeue::After(BUSY),
        }
    }

    /// Whether the same call may succeed a little later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::Throttled(_)
                | Self::RetryAfter(..)
                | Self::CircuitOpen(..)
                | Self::Outage { .. }
        )
    }

    /// The time until the next call may be made, if the broker was not called: such an error is not its answer, and
    /// does not count as a failure.
    pub fn not_called_delay(&self) -> Option<Duration> {
        match self {
            Self::TooManyCalls(_) | Self::Unconfirmed(_) => Some(BUSY),
            Self::TooManyWaiting(_, wait)
            | Self::CircuitOpen(_, wait)
            | Self::Outage { wait, .. } => Some(*wait),
            _ => None,
        }
    }

    /// Whether there is something to report: the broker was called, or its circuit is open, so that its last answer is
    /// known.
    pub fn is_reportable(&self) -> bool {
        let is_rejection = matches!(self, Self::CircuitOpen(..) | Self::Outage { .. });
        self.not_called_delay().is_none() || is_rejection
    }

    /// The error of an overloaded or broken broker, with the delay that it requests, if any.
    pub(super) fn throttled(text: String, wait: Option<Duration>) -> Self {
        match wait {
            Some(wait) => Self::RetryAfter(text, wait),
            None => Self::Throttled(text),
        }
    }

    /// The fault to report in a condition.
    pub fn fault(&self) -> Fault {
        Fault {
            reason: self.reason(),
            message: self.to_string(),
            requeue: self.requeue(),
        }
    }
}

pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest pause granted to a broker that requests one.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Parses a `Retry-After` header in seconds. The date form is ignored, because no broker sends it.
pub(super) fn retry_after(header: &str) -> Option<Duration> {
    let seconds: u64 = header.trim().parse().ok()?;
    let wait = Duration::from_secs(seconds).min(MAX_RETRY_AFTER);
    (!wait.is_zero()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FW-28
    #[test]
    fn retry_after_header_is_parsed_and_capped() {
        let seconds = Duration::from_secs;
        for (header, expected) in [
            ("7", Some(seconds(7))),
            (" 120 ", Some(seconds(120))),
            ("86400", Some(MAX_RETRY_AFTER)),
            ("0", None),
            ("-1", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("", None),
        ] {
            assert_eq!(retry_after(header), expected, "{header:?}");
        }
    }

    /// OPS-22, QUE-10
    #[test]
    fn broker_that_was_not_called_has_not_failed_and_only_its_last_answer_is_reported() {
        let text = String::new;
        let wait = Duration::from_secs(9);
        for (error, expected, is_reportable) in [
            (BrokerError::TooManyCalls(text()), Some(BUSY), false),
            (BrokerError::Unconfirmed(text()), Some(BUSY), false),
            (BrokerError::TooManyWaiting(text(), wait), Some(wait), false),
            (BrokerError::RetryAfter(text(), wait), None, true),
            (BrokerError::Unreachable(text()), None, true),
            (
                BrokerError::CircuitOpen(Box::new(BrokerError::Unreachable(text())), wait),
                Some(wait),
                true,
            ),
        ] {
            assert_eq!(error.not_called_delay(), expected, "{error:?}");
            assert_eq!(error.is_reportable(), is_reportable, "{error:?}");
            if let Some(wait) = expected {
                assert_eq!(error.requeue(), Requeue::After(wait), "{error:?}");
            }
        }
    }

    /// QUE-9, QUE-10, QUE-11
    #[test]
    fn in_an_outage_the_last_answer_is_reported_word_for_word_although_no_call_was_made() {
        let wait = Duration::from_secs(9);
        for last in [
            BrokerError::Unreachable("no answer".to_owned()),
            BrokerError::RetryAfter("slow down".to_owned(), wait),
        ] {
            let rejected = BrokerError::Outage {
                last: Box::new(last.clone()),
                wait,
                rounds: 3,
            };
            assert_eq!(rejected.not_called_delay(), Some(wait));
            assert!(rejected.is_reportable() && rejected.is_transient());
            let (fault, expected) = (rejected.fault(), last.fault());
            assert_eq!(
                (fault.reason, fault.message),
                (expected.reason, expected.message)
            );
            assert_eq!(fault.requeue, Requeue::Backoff);
        }
    }

    /// SQS-8, FW-28, FW-32
    #[test]
    fn every_error_maps_to_a_reason_and_a_requeue() {
        let text = String::new;
        for (error, reason, requeue) in [
            (
                BrokerError::CredentialsMissing(text()),
                Reason::CredentialsMissing,
                Requeue::SlowBackoff,
            ),
            (
                BrokerError::AuthFailed(text()),
                Reason::BrokerAuthFailed,
                Requeue::SlowBackoff,
            ),
            (
                BrokerError::Unreachable(text()),
                Reason::BrokerUnreachable,
                Requeue::Backoff,
            ),
            (
                BrokerError::CircuitOpen(
                    Box::new(BrokerError::Unreachable(text())),
                    Duration::from_secs(7),
                ),
                Reason::BrokerUnreachable,
                Requeue::After(Duration::from_secs(7)),
            ),
            (
                BrokerError::Throttled(text()),
                Reason::BrokerThrottled,
                Requeue::Backoff,
            ),
            (
                BrokerError::RetryAfter(text(), Duration::from_secs(7)),
                Reason::BrokerThrottled,
                Requeue::After(Duration::from_secs(7)),
            ),
            (
                BrokerError::PrerequisiteMissing(text()),
                Reason::QueueConfigInvalid,
                Requeue::SlowBackoff,
            ),
            (
                BrokerError::ConfigInvalid(text()),
                Reason::QueueConfigInvalid,
                Requeue::AwaitChange,
            ),
            (
                BrokerError::Mismatch(text()),
                Reason::QueueMismatch,
                Requeue::SlowBackoff,
            ),
            (
                BrokerError::QueueNameTaken(text()),
                Reason::QueueConflict,
                Requeue::SlowBackoff,
            ),
            (
                BrokerError::DeletedRecently(text()),
                Reason::QueueDeletedRecently,
                Requeue::After(Duration::from_secs(65)),
            ),
        ] {
            let fault = error.fault();
            assert_eq!(
                (fault.reason, fault.requeue),
                (reason, requeue),
                "{error:?}"
            );
        }
    }
}
