//! What a failed call to a broker means for the status of a queue (QUE-10).

use super::BrokerError;

/// The consecutive failure at which a verified queue is reported as failed.
const THRESHOLD: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// Nothing: the broker was not called (OPS-22). While its circuit is open, its last answer says nothing new about a
    /// queue that was usable before.
    NotCalled,
    /// The broker may be back soon, and the queue was usable before: status stays.
    Tolerated,
    /// The same, but too many times in a row.
    Persistent,
    /// Nothing is known to be usable, waiting does not help, or the broker has not responded for so long that it was
    /// not called.
    Definite,
}

impl CallFailure {
    /// Classifies a failed call, after this many failures in a row of a queue that is `verified` or not.
    pub fn classify(failures: u32, verified: bool, error: &BrokerError) -> Self {
        if matches!(error, BrokerError::Outage { .. }) {
            Self::Definite
        } else if !error.is_reportable() || (verified && error.not_called_delay().is_some()) {
            Self::NotCalled
        } else if !verified || !error.is_transient() {
            Self::Definite
        } else if failures + 1 < THRESHOLD {
            Self::Tolerated
        } else {
            Self::Persistent
        }
    }

    pub fn is_counted(self) -> bool {
        matches!(self, Self::Tolerated | Self::Persistent)
    }

    pub fn is_reported(self) -> bool {
        matches!(self, Self::Persistent | Self::Definite)
    }
}
