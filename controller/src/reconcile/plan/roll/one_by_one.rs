//! Replaces pods one by one, by eviction (ROLL-4, ROLL-6).

use asya_shared::api::RolloutStatus;
use asya_shared::resolve::Roll;

use super::facts::{Act, LATER, Rolling, RolloutFacts, runs, waits_for_slot};
use crate::fault::Reason;
use crate::reconcile::model::bound_pods::{Lacks, OutdatedPod};
use crate::reconcile::model::rollout::Live;
use crate::reconcile::plan::evict::{self, Obstacle};

/// Evicts the next pod once all others exist and are ready (SAFE-11).
pub(super) fn evict(facts: &RolloutFacts<'_>, before: Option<&RolloutStatus>) -> Rolling {
    if facts.is_going() {
        return runs();
    }
    let evicting = facts.evicting(facts.lacking, before);
    if let Some(obstacle) = evicting.obstacle() {
        return waits(&evicting, &obstacle);
    }
    if let Some(wait) = waits_for_slot(facts) {
        return wait;
    }
    match evicting.next() {
        Some(pod) => Rolling::Act(Act::Evict(pod.clone())),
        None => Rolling::Rest,
    }
}

fn waits(evicting: &evict::EvictionFacts<'_>, obstacle: &Obstacle) -> Rolling {
    if obstacle.is_overdue {
        return stall(evicting, obstacle);
    }
    if evicting.since.is_some() {
        return runs();
    }
    let text = format!(
        "{}, so evicting another would leave fewer; waiting until that has changed",
        obstacle.text
    );
    Rolling::Wait(Reason::RolloutWaiting, text, LATER)
}

/// SAFE-12
fn stall(evicting: &evict::EvictionFacts<'_>, obstacle: &Obstacle) -> Rolling {
    Rolling::Stall(format!(
        "the rollout has stopped: {} for {}; see the Events of the pod and of its controller; it goes on by itself once every pod is ready, and a change of the actor's spec replaces the pods that are not",
        obstacle.text,
        evicting.limit_text()
    ))
}

/// A rollout by the target's own controller that makes no progress. It is not rolled back: new pods get the sidecar
/// whatever the template says, so a second rollout would restore nothing.
pub(super) fn stalled(facts: &RolloutFacts<'_>, before: Option<&RolloutStatus>) -> Option<Rolling> {
    let evicting = facts.evicting(facts.lacking, before);
    let obstacle = evicting.obstacle().filter(|it| it.is_overdue)?;
    Some(stall(&evicting, &obstacle))
}

/// A pod that an older sidecar keeps from becoming ready. Its replacement gets the current sidecar whatever its
/// controller does, so evict it even if a rollout is stuck on it (SAFE-13).
pub(super) fn broken(
    facts: &RolloutFacts<'_>,
    before: Option<&RolloutStatus>,
) -> Option<OutdatedPod> {
    let outdated = facts.lacking.iter().filter(|it| it.lacks == Lacks::Today);
    let outdated: Vec<_> = outdated.cloned().collect();
    let is_next = facts.evicting(facts.lacking, before).obstacle().is_none();
    let pod = facts
        .evicting(&outdated, before)
        .unready_candidate()
        .cloned();
    pod.filter(|_| is_next)
}

/// Whether eviction, which replaces only outdated pods, is cheaper: a rollout would replace at least as many current
/// ones. Only where the target's own update also removes a pod before its replacement is ready (SAFE-17).
pub(super) fn spares(facts: &RolloutFacts<'_>) -> bool {
    let lacking = i32::try_from(facts.lacking.len()).unwrap_or(i32::MAX);
    let complete = facts.matched.saturating_sub(lacking);
    let is_allowed = matches!(facts.roll, Roll::AnnotateTemplate(_))
        && facts.live.iter().all(|it: &Live| it.lowers);
    is_allowed && !facts.live.is_empty() && complete > 0 && complete >= lacking
}
