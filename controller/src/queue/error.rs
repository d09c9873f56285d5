//! What a broker can answer besides yes.

use std::time::Duration;

use crate::fence::Fenced;
use crate::reconcile::{Fault, Reason, Retry};

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
    /// The broker does not accept what we ask for.
    #[error("{0}")]
    ConfigInvalid(String),
    /// The queue is there and cannot become what is wanted without losing messages.
    #[error("{0}")]
    Mismatch(String),
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
            Self::Throttled(_) => Reason::BrokerThrottled,
            Self::ConfigInvalid(_) => Reason::QueueConfigInvalid,
            Self::Mismatch(_) => Reason::QueueMismatch,
        }
    }

    /// What a condition says of it.
    pub fn fault(&self) -> Fault {
        let retry = match self {
            Self::Unreachable(_) | Self::Throttled(_) | Self::Fenced(_) => Retry::Soon,
            Self::CredentialsMissing(_) | Self::AuthFailed(_) | Self::Mismatch(_) => Retry::Slowly,
            Self::ConfigInvalid(_) => Retry::OnChange,
        };
        Fault {
            reason: self.reason(),
            message: self.to_string(),
            retry,
        }
    }
}

/// A call may take this long.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection may take this long.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
