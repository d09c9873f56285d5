//! Gates injection until a dry run has succeeded (SAFE-1).

use crate::api::InjectionStatus;

/// Whether pods of a binding get the sidecar, according to the last dry run.
///
/// If the API server rejects a pod because of the sidecar, the target loses that pod. Only a dry run can show this in
/// advance: quotas, `LimitRange`s, policies and Pod Security are all evaluated after our webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// A dry run has succeeded, or the status is from a release without dry runs.
    Open,
    /// No dry run with this hash has succeeded yet.
    Unproved,
    /// The API server rejects such pods, with this message.
    Refused(String),
}

impl Gate {
    /// Reads the gate for the actor part of the hash from status. A status without the field is from an earlier
    /// release, which injected as soon as `boundSince` was set; an upgrade must not stop that before a dry run has
    /// failed.
    #[must_use]
    pub fn of(status: Option<&InjectionStatus>, part: &str) -> Self {
        let Some(status) = status else {
            return Self::Open;
        };
        if status.refused.as_deref() == Some(part) {
            return Self::Refused(status.message.clone().unwrap_or_default());
        }
        if status.proved.as_deref() == Some(part) {
            Self::Open
        } else {
            Self::Unproved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;
    use crate::api::InjectionStatus;

    /// SAFE-1, SAFE-3
    #[test]
    fn gate_opens_only_for_the_hash_that_a_dry_run_has_proved() {
        let text = |text: &str| Some(text.to_owned());
        let status = |proved: Option<&str>, refused: Option<&str>| InjectionStatus {
            proved: proved.and_then(text),
            refused: refused.and_then(text),
            message: refused.and_then(|_| text("exceeded quota")),
            ..InjectionStatus::default()
        };
        let refused = || Gate::Refused("exceeded quota".to_owned());
        for (proved, refusal, wanted) in [
            (None, None, Gate::Unproved),
            (Some("today"), None, Gate::Open),
            (Some("earlier"), None, Gate::Unproved),
            (None, Some("today"), refused()),
            (Some("earlier"), Some("today"), refused()),
            (Some("today"), Some("earlier"), Gate::Open),
        ] {
            let status = status(proved, refusal);
            assert_eq!(Gate::of(Some(&status), "today"), wanted, "{status:?}");
        }
        assert_eq!(
            Gate::of(None, "today"),
            Gate::Open,
            "a status of an earlier release"
        );
    }
}
