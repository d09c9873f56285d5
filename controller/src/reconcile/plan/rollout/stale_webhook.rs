//! Waits for a stale replica of the webhook (ROLL-5).

use asya_shared::api::RolloutStatus;

use super::inputs::{RolloutAction, RolloutDecision, RolloutInputs};
use crate::reconcile::model::rollout::is_replacement;
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState, WEBHOOK_MAX_LAG};

/// Postpones the replacement of further pods if earlier replacements were reviewed by a replica that was behind:
/// another one could be reviewed by the same replica.
pub(super) fn wait_for_webhook(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
    decision: &RolloutDecision,
) -> Option<RolloutDecision> {
    let previous = previous?;
    match decision {
        RolloutDecision::Act(RolloutAction::Annotate(_)) => {}
        RolloutDecision::Act(RolloutAction::Evict(pod)) if !is_broken(inputs, previous, pod) => {}
        _ => return None,
    }
    let was_behind = |pod: &PodToReplace| {
        matches!(
            pod.sidecar,
            SidecarState::NotInjectedYet | SidecarState::Outdated
        ) && is_replacement(pod, previous)
    };
    if !inputs.outdated.iter().any(was_behind) {
        return None;
    }
    let remaining = WEBHOOK_MAX_LAG.checked_sub(inputs.elapsed(Some(previous))?)?;
    (!remaining.is_zero()).then(|| {
        let message = "pods were replaced, but a replica of the webhook that had not read the latest status of the \
                       actor did not give them the current sidecar; waiting until every replica has read it";
        RolloutDecision::Wait {
            message: message.to_owned(),
            requeue_after: remaining,
        }
    })
}

/// Whether a pod may be unready because of its older sidecar, which a replacement would fix (SAFE-13).
fn is_broken(inputs: &RolloutInputs<'_>, previous: &RolloutStatus, pod: &PodToReplace) -> bool {
    let mut unready = inputs.availability.unready.iter();
    pod.sidecar == SidecarState::Outdated
        && !is_replacement(pod, previous)
        && unready.any(|unready| unready.uid == pod.uid)
}
