//! Errors that end a reconcile.

use std::time::Duration;

use kube::core::Status;

use super::authorization::missing_permission;
use super::{Conflict, Fault, Fenced, Reason, Requeue};

/// Why a reconcile could neither act nor report a condition.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The reconcile had read stale data, as it noticed before a write.
    #[error("{0} was changed concurrently")]
    Stale(&'static str),
    /// The API server rejected a write, because the object was changed, replaced or created after it was read. The text
    /// names the object.
    #[error("{0}")]
    Conflict(String),
    /// The broker was not called, because too many calls are in flight. This says nothing about the actor.
    #[error("{0}")]
    Busy(String, Duration),
    /// The API server failed, or refused for a transient reason.
    #[error("API server: {0}")]
    Api(#[source] kube::Error),
}

/// Why a step of a reconcile failed.
#[derive(Debug)]
pub enum StepError {
    /// A fault of the actor, reported in its conditions. Steps that do not depend on this one still run.
    Fault(Fault),
    /// Ends the reconcile.
    Error(Error),
}

impl StepError {
    /// Classifies the API server's error for a write of `object`.
    pub fn of_write(object: &str, error: kube::Error) -> Self {
        classify_write_error(object, error).map_or_else(Self::Error, Self::Fault)
    }

    /// The fault to report.
    ///
    /// # Errors
    /// If the error ends the reconcile.
    pub fn fault(self) -> Result<Fault, Error> {
        match self {
            Self::Fault(fault) => Ok(fault),
            Self::Error(error) => Err(error),
        }
    }

    /// Whether the name may be taken even though the create failed for another reason: the API server rejects some
    /// objects before it checks whether the name exists.
    pub fn object_may_exist(&self) -> bool {
        matches!(self, Self::Fault(_) | Self::Error(Error::Conflict(_)))
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Fault> for StepError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Retry delay for an exceeded quota, because no event reports when it is no longer exceeded (FW-28).
const QUOTA: Duration = Duration::from_mins(1);

/// Retry delay for an owner of a kind that the API server does not know yet: its cache of kinds is renewed every 30 s
/// (FW-28).
const OWNER_KIND: Duration = Duration::from_secs(5);
/// The error of admission plugin `OwnerReferencesPermissionEnforcement` in that case.
const OWNER_KIND_UNKNOWN: &str =
    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping";

impl Error {
    /// A write of `object` that the API server rejected with `response`, a conflict.
    pub fn conflict(object: &str, response: &kube::Error) -> Self {
        Self::Conflict(match response {
            kube::Error::Api(status) => format!("{object}: {}", status.message),
            other => format!("{object}: {other}"),
        })
    }

    /// Metric label.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stale(_) | Self::Conflict(_) => "stale",
            Self::Busy(..) => "broker_busy",
            Self::Api(kube::Error::Api(status)) if status.code == 429 => "api_throttled",
            Self::Api(kube::Error::Api(status)) if status.code >= 500 => "api_failed",
            Self::Api(kube::Error::Api(_)) => "api_refused",
            Self::Api(error) if Fenced::is_cause_of(error) => "fenced",
            Self::Api(_) => "api_unreachable",
        }
    }

    /// Whether a call failed; otherwise the reconcile only has to run again, with fresh data or once the broker may be
    /// called.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Stale(_) | Self::Conflict(_) | Self::Busy(..) => false,
            Self::Api(_) => true,
        }
    }

    pub fn requeue(&self) -> Requeue {
        match self {
            Self::Stale(_) | Self::Conflict(_) => Requeue::Now,
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
                        && Conflict::of_status(status).is_none() =>
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

/// Classifies the API server's error for a write of a child: rejected content becomes a condition of the actor, any
/// other error ends the reconcile.
fn classify_write_error(object: &str, error: kube::Error) -> Result<Fault, Error> {
    match error {
        error if Conflict::of(&error).is_some() => Err(Error::conflict(object, &error)),
        kube::Error::Api(status) if status.is_forbidden() => {
            let permission_fault = missing_permission(object, &status.message);
            Ok(permission_fault.unwrap_or_else(|| result(object, &status)))
        }
        kube::Error::Api(status) if is_rejection(&status) => Ok(result(object, &status)),
        error => Err(Error::Api(error)),
    }
}

fn result(object: &str, status: &Status) -> Fault {
    let owner_kind_unknown = status.message.contains(OWNER_KIND_UNKNOWN);
    let hint = if owner_kind_unknown {
        "; API servers know a kind up to 30 s after its CRD is created"
    } else {
        ""
    };
    Fault {
        reason: Reason::ReconcileError,
        message: format!("{object}: {}{hint}", status.message),
        requeue: match status {
            // A kind is not served until shortly after its CRD is created.
            _ if status.is_not_found() => Requeue::Backoff,
            _ if owner_kind_unknown => Requeue::After(OWNER_KIND),
            _ if status.message.contains("exceeded quota") => Requeue::After(QUOTA),
            _ => Requeue::SlowBackoff,
        },
    }
}

/// The API server returns 500 for a value of the wrong type in the pod template, which has no schema, and for the
/// eviction of a pod that two budgets select. Only the text distinguishes that from a server failure.
fn is_rejection(status: &Status) -> bool {
    match status.code {
        429 => false,
        400..500 => true,
        500 => [
            "failed to create typed patch object",
            "failed to convert new object",
            "failed to convert patched object",
            "This pod has more than one PodDisruptionBudget",
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

    use super::{Error, classify_write_error};
    use crate::fault::{Reason, Requeue};

    fn api_error(code: u16, message: &str) -> kube::Error {
        let reason = if code == 409 { "Conflict" } else { "" };
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    /// API-5, API-6
    #[test]
    fn rejected_content_is_a_fault_of_the_actor_for_every_status_code() {
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
            let fault = classify_write_error("Deployment a/b", api_error(code, text)).unwrap();
            assert_eq!(fault.reason, Reason::ReconcileError, "{text}");
            assert_eq!(fault.message, format!("Deployment a/b: {text}"));
            let quota = super::Requeue::After(super::QUOTA);
            assert_eq!(
                fault.requeue == quota,
                text.contains("quota"),
                "FW-28: {text}"
            );
        }
    }

    /// FW-28: an API server with `OwnerReferencesPermissionEnforcement` finds the actors' kind only some time after the
    /// CRD is created.
    #[test]
    fn object_whose_owner_the_api_server_does_not_know_yet_is_applied_again_soon() {
        let text = "deployments.apps \"b\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find \
                    RESTMapping for APIVersion asya.sh/v1alpha1 Kind AsyncActor: no matches for kind";
        let fault = classify_write_error("Deployment a/b", api_error(403, text)).unwrap();
        assert_eq!(fault.reason, Reason::ReconcileError);
        assert_eq!(fault.requeue, Requeue::After(Duration::from_secs(5)));
        assert_eq!(
            fault.message,
            format!(
                "Deployment a/b: {text}; API servers know a kind up to 30 s after its CRD is created"
            )
        );
    }

    /// FW-28, FW-32
    #[test]
    fn requeue_depends_on_the_error() {
        let throttled: Status = serde_json::from_str(
            r#"{"status": "Failure", "code": 429, "details": {"retryAfterSeconds": 7}}"#,
        )
        .unwrap();
        let unreachable = kube::Error::Service("connection refused".into());
        for (error, kind, expected) in [
            (Error::Stale("the actor"), "stale", Requeue::Now),
            (
                Error::Conflict("Deployment a/b: modified".to_owned()),
                "stale",
                Requeue::Now,
            ),
            (
                Error::Busy("busy".to_owned(), Duration::from_secs(9)),
                "broker_busy",
                Requeue::After(Duration::from_secs(9)),
            ),
            (
                Error::Api(kube::Error::Api(throttled.boxed())),
                "api_throttled",
                Requeue::After(Duration::from_secs(7)),
            ),
            (
                Error::Api(api_error(429, "")),
                "api_throttled",
                Requeue::Backoff,
            ),
            (
                Error::Api(api_error(500, "")),
                "api_failed",
                Requeue::Backoff,
            ),
            (
                Error::Api(api_error(503, "")),
                "api_failed",
                Requeue::Backoff,
            ),
            (
                Error::Api(api_error(409, "")),
                "api_refused",
                Requeue::Backoff,
            ),
            (
                Error::Api(api_error(403, "")),
                "api_refused",
                Requeue::SlowBackoff,
            ),
            (
                Error::Api(api_error(422, "")),
                "api_refused",
                Requeue::SlowBackoff,
            ),
            (Error::Api(unreachable), "api_unreachable", Requeue::Backoff),
        ] {
            assert_eq!((error.kind(), error.requeue()), (kind, expected), "{error}");
            let runs_again_only = ["stale", "broker_busy"].contains(&kind);
            assert_eq!(error.is_failure(), !runs_again_only, "{error}");
        }
    }

    /// FW-31
    #[test]
    fn api_server_failure_is_not_a_fault_of_the_actor() {
        for (code, text) in [
            (409, "the object has been modified"),
            (429, "too many requests"),
            (500, "etcdserver: request timed out"),
            (503, "shutting down"),
        ] {
            let error = classify_write_error("Deployment a/b", api_error(code, text)).unwrap_err();
            assert_eq!(matches!(error, Error::Conflict(_)), code == 409, "{text}");
        }
    }

    /// FW-10: the log of an actor that is reconciled again and again says which object the conflict is about.
    #[test]
    fn conflict_names_the_object_and_repeats_the_answer_of_the_api_server() {
        let response = api_error(409, "the object has been modified");
        let error = classify_write_error("Deployment a/b", response).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Deployment a/b: the object has been modified"
        );
    }
}
