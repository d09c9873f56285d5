//! Errors that end a reconcile.

use std::time::Duration;

use kube::core::Status;

use super::Fenced;
use super::authorization::missing_right;
use super::{Fault, Reason, Requeue};

/// Why a reconcile could neither act nor report a condition.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The reconcile had read stale data.
    #[error("{0} was changed concurrently")]
    Stale(&'static str),
    /// The broker was not called: too many calls are in flight. This is no state of the actor.
    #[error("{0}")]
    Busy(String, Duration),
    /// The API server failed, or refused for a transient reason.
    #[error("API server: {0}")]
    Api(#[source] kube::Error),
}

/// Why a step of a reconcile was not taken.
#[derive(Debug)]
pub enum StepError {
    /// A state of the actor, reported in its conditions. Steps that do not depend on this one are still taken.
    Refused(Fault),
    /// Ends the reconcile.
    Aborted(Error),
}

impl StepError {
    /// Classifies the API server's error for a write of `what`.
    pub fn of_write(what: &str, error: kube::Error) -> Self {
        refused(what, error).map_or_else(Self::Aborted, Self::Refused)
    }

    /// The fault to report.
    ///
    /// # Errors
    /// When the reconcile ends.
    pub fn fault(self) -> Result<Fault, Error> {
        match self {
            Self::Refused(fault) => Ok(fault),
            Self::Aborted(error) => Err(error),
        }
    }

    /// Whether this error of a creation may hide that the name is taken: the API server rejects some objects before it
    /// checks whether one exists.
    pub fn may_be_taken(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Aborted(Error::Stale(_)))
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Aborted(error)
    }
}

impl From<Fault> for StepError {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

/// Retry delay for an exceeded quota: no event announces that it has room again (FW-28).
const QUOTA: Duration = Duration::from_mins(1);

impl Error {
    /// Metric label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stale(_) => "stale",
            Self::Busy(..) => "broker_busy",
            Self::Api(kube::Error::Api(status)) if status.code == 429 => "api_throttled",
            Self::Api(kube::Error::Api(status)) if status.code >= 500 => "api_failed",
            Self::Api(kube::Error::Api(_)) => "api_refused",
            Self::Api(error) if Fenced::caused(error) => "fenced",
            Self::Api(_) => "api_unreachable",
        }
    }

    /// When to requeue.
    pub fn retry(&self) -> Requeue {
        match self {
            Self::Stale(_) => Requeue::Now,
            Self::Busy(_, wait) => Requeue::After(*wait),
            Self::Api(kube::Error::Api(status)) => {
                let after = status
                    .details
                    .as_ref()
                    .map(|details| details.retry_after_seconds)
                    .filter(|s| *s > 0);
                match after {
                    Some(seconds) => Requeue::After(Duration::from_secs(u64::from(seconds))),
                    None if (400..500).contains(&status.code)
                        && status.code != 429
                        && status.code != 409 =>
                    {
                        Requeue::SlowBackoff
                    }
                    None => Requeue::Backoff,
                }
            }
            Self::Api(_) => Requeue::Backoff,
        }
    }
}

/// Classifies the API server's error for a write of a child: rejected content becomes a condition of the actor,
/// anything else is not the actor's fault.
fn refused(what: &str, error: kube::Error) -> Result<Fault, Error> {
    match error {
        kube::Error::Api(status) if status.is_conflict() => Err(Error::Stale("an object")),
        kube::Error::Api(status) if status.is_forbidden() => {
            let right = missing_right(what, &status.message);
            Ok(right.unwrap_or_else(|| refusal(what, &status)))
        }
        kube::Error::Api(status) if is_refusal(&status) => Ok(refusal(what, &status)),
        error => Err(Error::Api(error)),
    }
}

fn refusal(what: &str, status: &Status) -> Fault {
    Fault {
        reason: Reason::ReconcileError,
        message: format!("{what}: {}", status.message),
        retry: match status {
            // A kind is served a moment after its CRD was installed.
            _ if status.is_not_found() => Requeue::Backoff,
            _ if status.message.contains("exceeded quota") => Requeue::After(QUOTA),
            _ => Requeue::SlowBackoff,
        },
    }
}

/// The API server returns 500 for a value of the wrong type that the schemaless template let through. Only the text
/// distinguishes that from a server failure.
fn is_refusal(status: &Status) -> bool {
    match status.code {
        429 => false,
        400..500 => true,
        500 => [
            "failed to create typed patch object",
            "failed to convert new object",
            "failed to convert patched object",
        ]
        .iter()
        .any(|text| status.message.starts_with(text)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use std::time::Duration;

    use super::{Error, refused};
    use crate::fault::{Reason, Requeue};

    fn answer(code: u16, message: &str) -> kube::Error {
        let reason = if code == 409 { "Conflict" } else { "" };
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    /// API-5, API-6
    #[test]
    fn rejected_content_is_the_actors_fault_whatever_the_status_code() {
        for (code, text) in [
            (400, "strict decoding error"),
            (403, "exceeded quota"),
            (422, "spec.replicas: must be positive"),
            (
                500,
                "failed to create typed patch object (a/b; apps/v1, Kind=Deployment): expected numeric",
            ),
            (
                500,
                "failed to convert new object (a/b; apps/v1, Kind=Deployment) to proper version: quantities",
            ),
        ] {
            let fault = refused("Deployment a/b", answer(code, text)).unwrap();
            assert_eq!(fault.reason, Reason::ReconcileError, "{text}");
            assert_eq!(fault.message, format!("Deployment a/b: {text}"));
            let quota = super::Requeue::After(super::QUOTA);
            assert_eq!(
                fault.retry == quota,
                text.contains("quota"),
                "FW-28: {text}"
            );
        }
    }

    /// FW-28, FW-32
    #[test]
    fn requeue_depends_on_what_failed() {
        let busy: Status = serde_json::from_str(
            r#"{"status": "Failure", "code": 429, "details": {"retryAfterSeconds": 7}}"#,
        )
        .unwrap();
        let unreachable = kube::Error::Service("connection refused".into());
        for (error, kind, wanted) in [
            (Error::Stale("an object"), "stale", Requeue::Now),
            (
                Error::Busy("busy".to_owned(), Duration::from_secs(9)),
                "broker_busy",
                Requeue::After(Duration::from_secs(9)),
            ),
            (
                Error::Api(kube::Error::Api(busy.boxed())),
                "api_throttled",
                Requeue::After(Duration::from_secs(7)),
            ),
            (
                Error::Api(answer(429, "")),
                "api_throttled",
                Requeue::Backoff,
            ),
            (Error::Api(answer(500, "")), "api_failed", Requeue::Backoff),
            (Error::Api(answer(503, "")), "api_failed", Requeue::Backoff),
            (Error::Api(answer(409, "")), "api_refused", Requeue::Backoff),
            (
                Error::Api(answer(403, "")),
                "api_refused",
                Requeue::SlowBackoff,
            ),
            (
                Error::Api(answer(422, "")),
                "api_refused",
                Requeue::SlowBackoff,
            ),
            (Error::Api(unreachable), "api_unreachable", Requeue::Backoff),
        ] {
            assert_eq!((error.kind(), error.retry()), (kind, wanted), "{error}");
        }
    }

    /// FW-31
    #[test]
    fn api_server_failure_is_not_the_actors_fault() {
        for (code, text) in [
            (409, "the object has been modified"),
            (429, "too many requests"),
            (500, "etcdserver: request timed out"),
            (503, "shutting down"),
        ] {
            let error = refused("Deployment a/b", answer(code, text)).unwrap_err();
            assert_eq!(matches!(error, Error::Stale(_)), code == 409, "{text}");
        }
    }
}
