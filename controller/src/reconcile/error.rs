//! Why a pass could neither do nor tell.

use std::time::Duration;

use super::{Fault, Reason, Retry};
use crate::fence::Fenced;

/// Why a pass could neither do nor tell what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the pass had read was old.
    #[error("{0} changed meanwhile")]
    Stale(&'static str),
    /// The API server failed, or refused for a reason that may pass.
    #[error("API server: {0}")]
    Api(#[source] kube::Error),
}

impl Error {
    /// Metric label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stale(_) => "stale",
            Self::Api(kube::Error::Api(status)) if status.code == 429 => "api_throttled",
            Self::Api(kube::Error::Api(status)) if status.code >= 500 => "api_failed",
            Self::Api(kube::Error::Api(_)) => "api_refused",
            Self::Api(error) if Fenced::caused(error) => "fenced",
            Self::Api(_) => "api_unreachable",
        }
    }

    /// When to look again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Stale(_) => Retry::Now,
            Self::Api(kube::Error::Api(status)) => {
                let after = status
                    .details
                    .as_ref()
                    .map(|details| details.retry_after_seconds)
                    .filter(|s| *s > 0);
                match after {
                    Some(seconds) => Retry::After(Duration::from_secs(u64::from(seconds))),
                    None if (400..500).contains(&status.code)
                        && status.code != 429
                        && status.code != 409 =>
                    {
                        Retry::Slowly
                    }
                    None => Retry::Soon,
                }
            }
            Self::Api(_) => Retry::Soon,
        }
    }
}

/// What the API server says to a write of a child: a refusal of its content is the actor's condition,
/// anything else is not the actor's fault.
pub(crate) fn refused(what: &str, error: kube::Error) -> Result<Fault, Error> {
    match error {
        kube::Error::Api(status) if status.is_conflict() => Err(Error::Stale("the object")),
        kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429 => {
            Ok(Fault {
                reason: Reason::ReconcileError,
                message: format!("{what}: {}", status.message),
                retry: Retry::Slowly,
            })
        }
        error => Err(Error::Api(error)),
    }
}
