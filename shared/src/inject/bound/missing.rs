//! Why a pod of a binding has no sidecar, if the webhook left no reason on it (BIND-7, BIND-8).

use super::InjectionReason;
use crate::reason::MissingSidecar;

/// [`MissingSidecar::StartedBeforeBinding`]; also of a pod with the sidecar of another actor, which a rollout replaces.
pub const STARTED_BEFORE_BINDING: &str = MissingSidecar::StartedBeforeBinding.as_str();
/// [`MissingSidecar::WebhookUnavailable`]
pub const WEBHOOK_UNAVAILABLE: &str = MissingSidecar::WebhookUnavailable.as_str();
/// [`MissingSidecar::RemovedByOther`]
pub const REMOVED_BY_OTHER: &str = MissingSidecar::RemovedByOther.as_str();
/// [`MissingSidecar::NotInTemplate`]
pub const NOT_IN_TEMPLATE: &str = MissingSidecar::NotInTemplate.as_str();

/// Whether the reason is one of a [`MissingSidecar`].
#[must_use]
pub fn is_known(reason: &str) -> bool {
    MissingSidecar::ALL.iter().any(|it| it.as_str() == reason)
}

/// Whether replacing the pod helps, once the API server admits pods with the sidecar.
#[must_use]
pub fn is_fixed_by_replacement(reason: &str) -> bool {
    let of_review = [InjectionReason::NotProved, InjectionReason::ProbeRejected];
    is_known(reason) || of_review.iter().any(|it| it.as_str() == reason)
}
