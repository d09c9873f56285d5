//! Whether the API server admits an object, according to a dry run.

use asya_shared::probe::is_quota_rejection;
use serde::Serialize;

use crate::cluster::ApiFailure;

/// The result of an object's dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// As Kind/name, or in words.
    pub object: String,
    #[serde(flatten)]
    pub verdict: AdmissionVerdict,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "answer")]
pub enum AdmissionVerdict {
    Admitted,
    /// The pod exceeds a quota, but fits once the pod that it replaces is gone.
    AdmittedAsReplacement {
        message: String,
    },
    Rejected {
        by: RejectedBy,
        message: String,
    },
    /// The API server could not be asked.
    Unknown {
        message: String,
    },
}

/// The component that rejects an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RejectedBy {
    Quota,
    /// A policy, a webhook or Pod Security.
    Policy,
    /// The schema of the kind, or another rule of the API server.
    ApiServer,
}

impl RejectedBy {
    /// Derived from the API server's message.
    pub fn of(message: &str) -> Self {
        let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
        if is_quota_rejection(message) {
            Self::Quota
        } else if says(&[
            "admission webhook",
            "AdmissionPolicy",
            "violates PodSecurity",
            " is forbidden: ",
        ]) {
            Self::Policy
        } else {
            Self::ApiServer
        }
    }

    /// The name of its catalogue entry.
    pub fn entry(self) -> &'static str {
        match self {
            Self::Quota => "RejectedByQuota",
            Self::Policy => "RejectedByPolicy",
            Self::ApiServer => "RejectedByServer",
        }
    }
}

impl AdmissionVerdict {
    /// The verdict of a dry run.
    pub fn of<T>(result: &Result<T, ApiFailure>) -> Self {
        match result {
            Ok(_) => Self::Admitted,
            Err(failure) => match &failure.rejection {
                Some(message) => Self::Rejected {
                    by: RejectedBy::of(message),
                    message: message.clone(),
                },
                None => Self::Unknown {
                    message: failure.text.clone(),
                },
            },
        }
    }

    /// The message of a quota that rejects the object.
    pub fn quota_rejection(&self) -> Option<&str> {
        match self {
            Self::Rejected {
                by: RejectedBy::Quota,
                message,
            } => Some(message),
            _ => None,
        }
    }

    /// The rejection by the API server, if there is one.
    pub fn rejection(&self) -> Option<(RejectedBy, &str)> {
        match self {
            Self::Rejected { by, message } => Some((*by, message)),
            _ => None,
        }
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_tells_who_rejects() {
        for (message, by) in [
            (
                "pods \"p\" is forbidden: exceeded quota: q, requested: cpu=1",
                RejectedBy::Quota,
            ),
            (
                "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu",
                RejectedBy::Quota,
            ),
            (
                "admission webhook \"w\" denied the request: no",
                RejectedBy::Policy,
            ),
            (
                "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'x' denied request: no",
                RejectedBy::Policy,
            ),
            (
                "pods \"p\" is forbidden: violates PodSecurity \"restricted:latest\"",
                RejectedBy::Policy,
            ),
            (
                "pods \"p\" is forbidden: minimum memory usage per Container is 64Mi",
                RejectedBy::Policy,
            ),
            (
                "Deployment.apps \"x\" is invalid: spec.selector: immutable",
                RejectedBy::ApiServer,
            ),
        ] {
            assert_eq!(RejectedBy::of(message), by, "{message}");
            assert!(crate::catalogue::entry(by.entry()).is_some(), "{by:?}");
        }
    }

    #[test]
    fn what_is_no_rejection_is_unknown() {
        let failure = |rejection: Option<&str>| {
            Err::<(), _>(ApiFailure {
                text: "you may not create pods".to_owned(),
                rejection: rejection.map(str::to_owned),
                is_conflict: false,
                is_forbidden: false,
            })
        };
        assert!(AdmissionVerdict::of(&failure(None)).is_unknown());
        assert!(
            AdmissionVerdict::of(&failure(Some("no")))
                .rejection()
                .is_some()
        );
        assert_eq!(AdmissionVerdict::of(&Ok(())), AdmissionVerdict::Admitted);
    }
}
