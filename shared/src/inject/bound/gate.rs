//! Whether pods of a binding get the sidecar yet (SAFE-1).

use crate::api::InjectionStatus;

/// Whether pods of a binding get the sidecar, as the last dry run of one has shown.
///
/// A pod with the sidecar that the API server refuses is a pod that the target lacks. Nothing but a dry run tells in
/// advance: quotas, `LimitRange`s, policies and Pod Security are all asked after us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Pods with it are admitted, or the status is from a release that did not ask.
    Open,
    /// No dry run with this part has succeeded yet.
    Unproved,
    /// The API server refuses them, with this answer.
    Refused(String),
}

impl Gate {
    /// What a status says of pods with this actor's part of the hash. A status without the field is from an earlier
    /// release, which injected once `boundSince` was set: an upgrade must not stop that before a dry run tells otherwise.
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
    fn only_the_part_that_was_proved_passes_the_gate() {
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
