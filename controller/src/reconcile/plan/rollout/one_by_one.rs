//! Replaces pods one by one, by eviction (ROLL-4, ROLL-6).

use asya_shared::api::RolloutStatus;
use asya_shared::resolve::RolloutMethod;
use asya_shared::roll;

use super::inputs::{RolloutAction, RolloutDecision, RolloutInputs};
use crate::reconcile::contention::ContentionState;
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState};
use crate::reconcile::plan::evict::{EvictionBlocker, EvictionInputs};

/// Evictions that are possible for a target now.
#[derive(Debug)]
pub(super) struct Evictions {
    /// Nothing but eviction replaces the pods.
    pub required: bool,
    /// Eviction, which replaces only outdated pods, is cheaper than a rollout, which would replace at least as many
    /// current ones. Only if the target's own update strategy also removes a pod before its replacement is ready
    /// (SAFE-17).
    pub preferred: bool,
    /// A pod that may be unready because of its older sidecar. Its replacement gets the current one from any
    /// controller, so evict it even if a rollout is stuck on it (SAFE-13).
    pub unready_outdated_pod: Option<PodToReplace>,
    /// The next eviction, or what it waits for (SAFE-11).
    pub decision: RolloutDecision,
    /// Set if a rollout by the target's own controller makes no progress. It is not rolled back: new pods get the
    /// sidecar with any template, so a second rollout would restore nothing.
    pub stalled: Option<RolloutDecision>,
}

impl Evictions {
    pub(super) fn new(inputs: &RolloutInputs<'_>, previous: Option<&RolloutStatus>) -> Self {
        let pods = inputs.outdated.iter();
        let with_sidecar = pods.filter(|pod| pod.sidecar == SidecarState::Outdated);
        let with_sidecar: Vec<_> = with_sidecar.cloned().collect();
        let unready = eviction_inputs(inputs, &with_sidecar, previous)
            .unready_candidate()
            .cloned();
        let all = eviction_inputs(inputs, inputs.outdated, previous);
        let blocker = all.blocker();
        let overdue = blocker.as_ref().filter(|it| it.readiness_overdue);
        Self {
            required: required(inputs),
            preferred: preferred(inputs),
            unready_outdated_pod: unready.filter(|_| blocker.is_none()),
            stalled: overdue.map(|blocker| stalled(&all, blocker)),
            decision: decide(inputs, &all, blocker.as_ref()),
        }
    }
}

fn decide(
    inputs: &RolloutInputs<'_>,
    evicting: &EvictionInputs<'_>,
    blocker: Option<&EvictionBlocker>,
) -> RolloutDecision {
    if inputs.has_terminating_pod() {
        return RolloutDecision::InProgress;
    }
    match blocker {
        Some(blocker) if blocker.readiness_overdue => stalled(evicting, blocker),
        Some(_) if evicting.requested_at.is_some() => RolloutDecision::InProgress,
        Some(blocker) => RolloutDecision::wait(format!(
            "{}, so no pod is evicted until that has changed",
            blocker.text
        )),
        None if !inputs.has_slot => RolloutDecision::AwaitSlot,
        None => evicting
            .next_candidate()
            .map_or(RolloutDecision::NotNeeded, |pod| {
                RolloutDecision::Act(RolloutAction::Evict(pod.clone()))
            }),
    }
}

/// Evicts no further pod while a replacement is not ready (SAFE-12).
fn stalled(evicting: &EvictionInputs<'_>, blocker: &EvictionBlocker) -> RolloutDecision {
    RolloutDecision::Stalled(format!(
        "the rollout is stalled: {} for {}; check the Events of the pod and of its controller; it continues once \
         every pod is ready, and a change of the actor's spec replaces the pods that are not ready",
        blocker.text,
        evicting.limit_text()
    ))
}

/// Whether to evict pods, which is the only way left if an unknown controller reverts the annotation.
fn required(inputs: &RolloutInputs<'_>) -> bool {
    let yielded = matches!(inputs.contention, ContentionState::Yielded(revision) if *revision == inputs.revision());
    let is_template = matches!(inputs.method, RolloutMethod::AnnotateTemplate(_));
    let reverted = is_template && inputs.unknown_owner && yielded;
    let needs_eviction = inputs.objects.iter().map(|it| it.needs_eviction);
    let deletes_pod_first = inputs.objects.iter().map(|it| it.deletes_pod_first);
    reverted || roll::requires_eviction(inputs.method, needs_eviction, deletes_pod_first)
}

fn preferred(inputs: &RolloutInputs<'_>) -> bool {
    let matched = usize::try_from(inputs.active).unwrap_or_default();
    let reduces_ready = inputs.objects.iter().map(|it| it.reduces_ready);
    let outdated = inputs.outdated.len();
    roll::eviction_spares_most_pods(inputs.method, reduces_ready, outdated, matched)
}

fn eviction_inputs<'a>(
    inputs: &RolloutInputs<'a>,
    candidates: &'a [PodToReplace],
    previous: Option<&RolloutStatus>,
) -> EvictionInputs<'a> {
    EvictionInputs {
        candidates,
        availability: inputs.availability,
        // The watch may not have reported the last eviction yet.
        active: inputs.active.min(inputs.availability.active),
        previous_pods: previous.and_then(|it| it.pods),
        requested_at: previous.and_then(|it| it.since.as_ref()).map(|it| it.0),
        limit: inputs.limit,
        now: inputs.now,
    }
}
