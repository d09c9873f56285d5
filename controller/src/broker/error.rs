//! What a broker can answer besides yes.

use std::time::Duration;

use crate::fault::Fenced;
use crate::fault::{Fault, Reason, Requeue};

/// SQS refuses a name for 60 s after its queue was deleted.
const DELETED_RECENTLY: Duration = Duration::from_secs(65);
/// All calls wait for their answers: by then some have ended, or the broker is known not to answer.
const BUSY: Duration = Duration::from_secs(1);

/// Why a call to a broker did not do what it should.
///
/// Messages carry no request ids, times or counters: a repeated error must not change a status (QUE-11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// The Secret or its key is missing or empty.
    #[error("{0}")]
    CredentialsMissing(String),
    /// The broker knows us not, or does not let us.
    #[error("{0}")]
    AuthFailed(String),
    /// No answer: refused, no such host, no TLS, too late.
    #[error("{0}")]
    Unreachable(String),
    /// The broker answers that it is overloaded or broken.
    #[error("{0}")]
    Throttled(String),
    /// The same, and for how long it wants to be left alone.
    #[error("{0}")]
    Resting(String, Duration),
    /// The broker does not accept what we ask for, and will not before that changes.
    #[error("{0}")]
    ConfigInvalid(String),
    /// What the configuration names is not there, or cannot be used, or the broker does not accept what we ask for,
    /// and nothing announces that it can.
    #[error("{0}")]
    NotThereYet(String),
    /// The queue is there and cannot become what is wanted without losing messages.
    #[error("{0}")]
    Mismatch(String),
    /// The queue is there and somebody else's.
    #[error("{0}")]
    Conflict(String),
    /// A queue of this name was deleted, and the name rests.
    #[error("{0}")]
    DeletedRecently(String),
    /// Not called: too many calls wait for their answers. No state of the actor, and not to be told.
    #[error("{0}")]
    Busy(String),
    /// Not called: the broker is slow, and enough passes wait for it; when to come again (OPS-22). No state of the actor.
    #[error("{0}")]
    Crowded(String, Duration),
    /// We no longer lead.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

impl BrokerError {
    /// The condition's reason; also the metric's label.
    pub fn reason(&self) -> Reason {
        match self {
            Self::CredentialsMissing(_) => Reason::CredentialsMissing,
            Self::AuthFailed(_) => Reason::BrokerAuthFailed,
            Self::Unreachable(_) | Self::Fenced(_) => Reason::BrokerUnreachable,
            Self::Throttled(_) | Self::Resting(..) | Self::Busy(_) | Self::Crowded(..) => {
                Reason::BrokerThrottled
            }
            Self::ConfigInvalid(_) | Self::NotThereYet(_) => Reason::QueueConfigInvalid,
            Self::Mismatch(_) => Reason::QueueMismatch,
            Self::Conflict(_) => Reason::QueueConflict,
            Self::DeletedRecently(_) => Reason::QueueDeletedRecently,
        }
    }

    /// When to look again (design, "When to look again").
    pub fn retry(&self) -> Requeue {
        match self {
            Self::Unreachable(_) | Self::Throttled(_) | Self::Fenced(_) => Requeue::Backoff,
            Self::CredentialsMissing(_)
            | Self::AuthFailed(_)
            | Self::NotThereYet(_)
            | Self::Mismatch(_)
            | Self::Conflict(_) => Requeue::SlowBackoff,
            Self::ConfigInvalid(_) => Requeue::AwaitChange,
            Self::DeletedRecently(_) => Requeue::After(DELETED_RECENTLY),
            Self::Resting(_, wait) | Self::Crowded(_, wait) => Requeue::After(*wait),
            Self::Busy(_) => Requeue::After(BUSY),
        }
    }

    /// Whether the broker may answer the same call a little later.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::Throttled(_) | Self::Resting(..)
        )
    }

    /// When to come again, where nobody was called because too many others wait for answers.
    pub fn comes_again(&self) -> Option<Duration> {
        match self {
            Self::Busy(_) => Some(BUSY),
            Self::Crowded(_, wait) => Some(*wait),
            _ => None,
        }
    }

    /// A broker that is overloaded or broken, and for how long it asks us to wait.
    pub(super) fn throttled(text: String, wait: Option<Duration>) -> Self {
        match wait {
            Some(wait) => Self::Resting(text, wait),
            None => Self::Throttled(text),
        }
    }

    /// What a condition says of it.
    pub fn fault(&self) -> Fault {
        Fault {
            reason: self.reason(),
            message: self.to_string(),
            retry: self.retry(),
        }
    }
}

/// A call may take this long.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection may take this long.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// No broker is left alone for longer, whatever it asks for.
const LONGEST_REST: Duration = Duration::from_mins(5);

/// Reads the header `Requeue-After`: seconds. No broker sends the other form, a date.
pub(super) fn retry_after(header: &str) -> Option<Duration> {
    let seconds: u64 = header.trim().parse().ok()?;
    let wait = Duration::from_secs(seconds).min(LONGEST_REST);
    (!wait.is_zero()).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FW-28
    #[test]
    fn brokers_wish_to_be_left_alone_is_read_and_bounded() {
        let seconds = Duration::from_secs;
        for (header, wanted) in [
            ("7", Some(seconds(7))),
            (" 120 ", Some(seconds(120))),
            ("86400", Some(LONGEST_REST)),
            ("0", None),
            ("-1", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("", None),
        ] {
            assert_eq!(retry_after(header), wanted, "{header:?}");
        }
    }

    /// OPS-22
    #[test]
    fn only_who_called_nobody_comes_again_without_a_word() {
        let text = String::new;
        let wait = Duration::from_secs(9);
        for (error, wanted) in [
            (BrokerError::Busy(text()), Some(BUSY)),
            (BrokerError::Crowded(text(), wait), Some(wait)),
            (BrokerError::Resting(text(), wait), None),
            (BrokerError::Unreachable(text()), None),
        ] {
            assert_eq!(error.comes_again(), wanted, "{error:?}");
            if let Some(wait) = wanted {
                assert_eq!(error.retry(), Requeue::After(wait), "{error:?}");
            }
        }
    }

    /// SQS-8, FW-28, FW-32
    #[test]
    fn each_error_has_its_reason_and_its_next_look() {
        let text = String::new;
        for (error, reason, retry) in [
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
                BrokerError::Throttled(text()),
                Reason::BrokerThrottled,
                Requeue::Backoff,
            ),
            (
                BrokerError::Resting(text(), Duration::from_secs(7)),
                Reason::BrokerThrottled,
                Requeue::After(Duration::from_secs(7)),
            ),
            (
                BrokerError::NotThereYet(text()),
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
                BrokerError::Conflict(text()),
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
            assert_eq!((fault.reason, fault.retry), (reason, retry), "{error:?}");
        }
    }
}
