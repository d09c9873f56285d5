//! Why a pod of a binding has no sidecar, if the webhook left no reason on it (BIND-7, BIND-8).

use super::InjectionReason;

/// The pod was created before the actor was bound (`status.boundSince`), or the webhook injected the sidecar of another
/// actor; a rollout replaces it.
pub const STARTED_BEFORE_BINDING: &str = "StartedBeforeBinding";
/// The pod was created later, and nothing says why it has no sidecar. Usually the API server did not call the webhook;
/// the webhook also leaves no reason while a replica of it does not know the binding yet.
pub const WEBHOOK_UNAVAILABLE: &str = "WebhookUnavailable";
/// The webhook injected the sidecar, and something removed it: another webhook, or a restored backup.
pub const REMOVED_BY_OTHER: &str = "RemovedByOther";

/// With strategy Template: the pod was created later, from a pod template without the sidecar. Its workload replaces
/// it, unless another writer has removed the sidecar from the template (condition Conflict).
pub const NOT_IN_TEMPLATE: &str = "NotInTemplate";

/// All of these reasons.
pub const REASONS: [&str; 4] = [
    STARTED_BEFORE_BINDING,
    WEBHOOK_UNAVAILABLE,
    REMOVED_BY_OTHER,
    NOT_IN_TEMPLATE,
];

/// Whether replacing the pod helps, once the API server admits pods with the sidecar.
#[must_use]
pub fn is_fixed_by_replacement(reason: &str) -> bool {
    let of_review = [InjectionReason::NotProved, InjectionReason::ProbeRejected];
    REASONS.contains(&reason) || of_review.iter().any(|it| it.as_str() == reason)
}
