//! The result of the dry run that must succeed before pods are injected (SAFE-1).

use crate::api::InjectionStatus;

/// Whether pods of a binding get the sidecar, according to the last dry run.
///
/// If the API server rejects a pod because of the sidecar, the target loses that pod. Only a dry run can show this in
/// advance: quotas, `LimitRange`s, policies and Pod Security are all evaluated after our webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// A dry run has succeeded, or the status is from a version without dry runs.
    Verified,
    /// No dry run with this hash has succeeded yet.
    Unverified,
    /// The API server rejects such pods, with this message.
    Rejected(String),
}

impl ProbeResult {
    /// Reads from status the result for this actor hash. A status without the field is from an earlier
    /// version, which injected as soon as `boundSince` was set; an upgrade must not stop that before a dry run has
    /// failed.
    #[must_use]
    pub fn from_status(status: Option<&InjectionStatus>, actor_hash: &str) -> Self {
        let Some(status) = status else {
            return Self::Verified;
        };
        if status.rejected_actor_hash.as_deref() == Some(actor_hash) {
            return Self::Rejected(status.message.clone().unwrap_or_default());
        }
        if status.verified_actor_hash.as_deref() == Some(actor_hash) {
            Self::Verified
        } else {
            Self::Unverified
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ProbeResult;
    use crate::api::InjectionStatus;

    /// SAFE-1, SAFE-3
    #[test]
    fn pods_are_admitted_only_with_the_hash_that_a_dry_run_has_verified() {
        let text = |text: &str| Some(text.to_owned());
        let status = |verified: Option<&str>, rejected: Option<&str>| InjectionStatus {
            verified_actor_hash: verified.and_then(text),
            rejected_actor_hash: rejected.and_then(text),
            message: rejected.and_then(|_| text("exceeded quota")),
            ..InjectionStatus::default()
        };
        let rejected = || ProbeResult::Rejected("exceeded quota".to_owned());
        for (verified, rejection, expected) in [
            (None, None, ProbeResult::Unverified),
            (Some("today"), None, ProbeResult::Verified),
            (Some("earlier"), None, ProbeResult::Unverified),
            (None, Some("today"), rejected()),
            (Some("earlier"), Some("today"), rejected()),
            (Some("today"), Some("earlier"), ProbeResult::Verified),
        ] {
            let status = status(verified, rejection);
            assert_eq!(
                ProbeResult::from_status(Some(&status), "today"),
                expected,
                "{status:?}"
            );
        }
        assert_eq!(
            ProbeResult::from_status(None, "today"),
            ProbeResult::Verified,
            "a status of an earlier version"
        );
    }
}
