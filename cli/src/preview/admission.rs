//! Whether the API server admits an object, according to a dry run.

use asya_shared::probe::{after_second_rejection, is_quota_rejection};
use serde::Serialize;

use crate::cluster::ApiFailure;

/// The answer to the dry run of an object.
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
    /// The pod exceeds a quota that the replaced pod frees.
    AdmittedAsReplacement {
        message: String,
    },
    Rejected {
        by: RejectedBy,
        message: String,
    },
    /// It could not be asked.
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
    /// Tells from the API server's message.
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

    /// Its name in the catalogue.
    pub fn entry(self) -> &'static str {
        match self {
            Self::Quota => "RejectedByQuota",
            Self::Policy => "RejectedByPolicy",
            Self::ApiServer => "RejectedByServer",
        }
    }
}

impl AdmissionVerdict {
    /// The verdict of one dry run.
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

    /// Whether a second dry run, without the pod's own requests, decides: the target has all its pods (`complete`), so
    /// a replaced pod frees its share of the quota.
    pub fn needs_second(&self, complete: bool) -> bool {
        let by_quota = matches!(
            self,
            Self::Rejected {
                by: RejectedBy::Quota,
                ..
            }
        );
        complete && by_quota
    }

    /// The verdict after the second dry run, as the operator's probe judges it (SAFE-7).
    pub fn after(self, second: Self) -> Self {
        let Self::Rejected { message: first, .. } = &self else {
            return self;
        };
        let left = match &second {
            Self::Rejected { message, .. } => after_second_rejection(first, message),
            Self::Admitted | Self::AdmittedAsReplacement { .. } => None,
            Self::Unknown { .. } => return second,
        };
        match left {
            None => Self::AdmittedAsReplacement {
                message: first.clone(),
            },
            Some(message) => Self::Rejected {
                by: RejectedBy::of(message),
                message: message.to_owned(),
            },
        }
    }

    /// Problems that the API server reports.
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

    fn rejected(message: &str) -> AdmissionVerdict {
        AdmissionVerdict::Rejected {
            by: RejectedBy::of(message),
            message: message.to_owned(),
        }
    }

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

    /// SAFE-7
    #[test]
    fn second_dry_run_decides_as_the_operators_probe_does() {
        let (quota, range) = (
            "forbidden: exceeded quota: q",
            "x is forbidden: minimum memory",
        );
        let unknown = || AdmissionVerdict::Unknown {
            message: "gone".to_owned(),
        };
        let as_replacement = || AdmissionVerdict::AdmittedAsReplacement {
            message: quota.to_owned(),
        };
        for (first, second, expected) in [
            (
                rejected(quota),
                AdmissionVerdict::Admitted,
                as_replacement(),
            ),
            (rejected(quota), rejected(range), as_replacement()),
            (
                rejected(quota),
                rejected("exceeded quota: r"),
                rejected("exceeded quota: r"),
            ),
            (rejected(quota), unknown(), unknown()),
        ] {
            assert!(first.needs_second(true) && !first.needs_second(false));
            assert_eq!(first.clone().after(second), expected, "{first:?}");
        }
        assert!(
            !rejected(range).needs_second(true) && !AdmissionVerdict::Admitted.needs_second(true)
        );
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
