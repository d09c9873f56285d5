//! Replaces pods one by one, by eviction (ROLL-4, ROLL-6).

use asya_shared::api::RolloutStatus;
use asya_shared::roll;

use super::inputs::{
    RECHECK_INTERVAL, RolloutAction, RolloutDecision, RolloutInputs, in_progress, wait_for_slot,
};
use crate::fault::Reason;
use crate::reconcile::model::bound_pods::{PodToReplace, SidecarState};
use crate::reconcile::plan::evict::{self, EvictionBlocker};

/// Evicts the next pod once all others exist and are ready (SAFE-11).
pub(super) fn evict(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> RolloutDecision {
    if inputs.has_terminating_pod() {
        return in_progress();
    }
    let evicting = inputs.eviction(inputs.outdated, previous);
    if let Some(blocker) = evicting.blocker() {
        return wait_or_stall(&evicting, &blocker);
    }
    if let Some(wait) = wait_for_slot(inputs) {
        return wait;
    }
    match evicting.next_candidate() {
        Some(pod) => RolloutDecision::Act(RolloutAction::Evict(pod.clone())),
        None => RolloutDecision::NotNeeded,
    }
}

fn wait_or_stall(
    evicting: &evict::EvictionInputs<'_>,
    blocker: &EvictionBlocker,
) -> RolloutDecision {
    if blocker.is_overdue {
        return stall(evicting, blocker);
    }
    if evicting.requested_at.is_some() {
        return in_progress();
    }
    let text = format!(
        "{}, so no pod is evicted until that has changed",
        blocker.text
    );
    RolloutDecision::Wait(Reason::RolloutWaiting, text, RECHECK_INTERVAL)
}

/// Evicts no further pod while a replacement is not ready (SAFE-12).
fn stall(evicting: &evict::EvictionInputs<'_>, blocker: &EvictionBlocker) -> RolloutDecision {
    RolloutDecision::Stall(format!(
        "the rollout is stalled: {} for {}; check the Events of the pod and of its controller; it continues once \
         every pod is ready, and a change of the actor's spec replaces the pods that are not ready",
        blocker.text,
        evicting.limit_text()
    ))
}

/// Reports a rollout by the target's own controller that makes no progress. It is not rolled back: new pods get the
/// sidecar with any template, so a second rollout would restore nothing.
pub(super) fn stalled(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> Option<RolloutDecision> {
    let evicting = inputs.eviction(inputs.outdated, previous);
    let blocker = evicting.blocker().filter(|it| it.is_overdue)?;
    Some(stall(&evicting, &blocker))
}

/// A pod that may be unready because of its older sidecar. Its replacement gets the current one from any controller, so
/// evict it even if a rollout is stuck on it (SAFE-13).
pub(super) fn unready_outdated_pod(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> Option<PodToReplace> {
    let outdated = inputs
        .outdated
        .iter()
        .filter(|it| it.sidecar == SidecarState::Outdated);
    let outdated: Vec<_> = outdated.cloned().collect();
    let unblocked = inputs
        .eviction(inputs.outdated, previous)
        .blocker()
        .is_none();
    let pod = inputs
        .eviction(&outdated, previous)
        .unready_candidate()
        .cloned();
    pod.filter(|_| unblocked)
}

/// Whether eviction, which replaces only outdated pods, is cheaper than a rollout, which would replace at least as many
/// current ones. Only if the target's own update strategy also removes a pod before its replacement is ready (SAFE-17).
pub(super) fn eviction_is_cheaper(inputs: &RolloutInputs<'_>) -> bool {
    let outdated = i32::try_from(inputs.outdated.len()).unwrap_or(i32::MAX);
    let reduces_ready = inputs.objects.iter().map(|it| it.reduces_ready);
    roll::eviction_is_cheaper(inputs.roll, reduces_ready, (outdated, inputs.matched))
}
