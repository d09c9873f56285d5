//! Decides whether and how to replace pods that started before a binding (docs/spec/binding.md, section 4).
//!
//! Level-triggered on pods: those without the actor's current sidecar have to be replaced, by whichever controller.
//! Each step writes one annotation or evicts one pod, after a dry run has shown that the replacement gets the sidecar.

mod breaker;
pub mod facts;
pub mod inputs;
mod one_by_one;

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::Roll;
use breaker::halted;

use crate::fault::Reason;
use crate::reconcile::contention::{ContentionState, FieldDecision, FieldView};
use crate::reconcile::model::outcome::RolloutOutcome;
use crate::reconcile::model::rollout::LiveObject;
use crate::reconcile::plan::roll::facts::{
    AnnotationConflict, RECHECK_INTERVAL, RolloutAction, RolloutDecision, RolloutFacts,
    in_progress, retry_number, wait_for_slot,
};

/// How long the controller of a workload, or that of its owner, may take to start replacing pods.
const START_DELAY: Duration = Duration::from_secs(5);
const OWNER_START_DELAY: Duration = Duration::from_secs(30);
/// Two annotations without effect within this time end the attempts, as do [`MAX_TRIES`] at any time (ROLL-5).
const RETRY_WINDOW: Duration = Duration::from_mins(1);
const MAX_TRIES: i32 = 5;

/// Decides the next step of the rollout of one target.
pub fn decide(facts: &RolloutFacts<'_>) -> RolloutDecision {
    if !facts.bound || !facts.has_url {
        return RolloutDecision::NotNeeded;
    }
    if facts.outdated.is_empty() {
        let is_verified = facts.matched > 0 || facts.injection_verified;
        return if is_verified {
            RolloutDecision::NotNeeded
        } else {
            RolloutDecision::Act(RolloutAction::VerifyInjection)
        };
    }
    if facts.rollout == BindingRollout::OnRestart && !facts.roll_now {
        return RolloutDecision::NotNeeded;
    }
    let before = facts.before.filter(|it| facts.is_continued(it));
    if let Some(halt) = halted(facts, before) {
        return halt;
    }
    if let Some(paused) = facts.live.iter().find(|it| it.paused) {
        let text = format!(
            "{}: spec.paused is true, so no pod is replaced; resume the rollout",
            paused.object
        );
        return RolloutDecision::Wait(Reason::RolloutWaiting, text, RECHECK_INTERVAL);
    }
    if uses_eviction(facts) {
        return one_by_one::evict(facts, before);
    }
    check_conflict(facts, before).unwrap_or_else(|| annotate(facts, before))
}

/// The decision if our annotation was reverted; `None` if the rollout may continue (CONF-2).
fn check_conflict(
    facts: &RolloutFacts<'_>,
    before: Option<&RolloutStatus>,
) -> Option<RolloutDecision> {
    let mut annotated = facts.live.iter().filter(|it| facts.annotates(it));
    let missing = annotated.find(|it| !facts.has_our_value(it));
    let view = FieldView {
        needed: true,
        written: before.is_some_and(|it| it.tries > 0),
        in_place: missing.is_none(),
    };
    match facts.conflict.decide(view, &facts.revision(), facts.now) {
        FieldDecision::Keep | FieldDecision::AwaitReset(_) | FieldDecision::Write => None,
        FieldDecision::Conflict => missing.map(|it| {
            RolloutDecision::Conflict(AnnotationConflict {
                object: it.object.clone(),
                stop: facts.unknown_owner && matches!(facts.roll, Roll::AnnotateTemplate(_)),
            })
        }),
        FieldDecision::Wait(wait) => Some(RolloutDecision::Wait(
            Reason::RolloutWaiting,
            RolloutOutcome::CONFLICT_MESSAGE.to_owned(),
            wait,
        )),
        FieldDecision::Stop => Some(RolloutDecision::Stop),
    }
}

/// Whether to evict pods, which is the only way left if an unknown controller reverts the annotation.
fn uses_eviction(facts: &RolloutFacts<'_>) -> bool {
    let stopped = matches!(facts.conflict, ContentionState::Stopped(revision) if *revision == facts.revision());
    let reverted = facts.unknown_owner && stopped;
    match facts.roll {
        Roll::Evict => true,
        Roll::AnnotateTemplate(_) => reverted || facts.live.iter().any(|it| it.by_eviction),
        Roll::Annotate(..) => false,
    }
}

fn annotate(facts: &RolloutFacts<'_>, before: Option<&RolloutStatus>) -> RolloutDecision {
    let start_delay = match facts.roll {
        Roll::Annotate(..) => OWNER_START_DELAY,
        Roll::AnnotateTemplate(_) | Roll::Evict => START_DELAY,
    };
    let is_starting = facts
        .elapsed(before)
        .is_some_and(|elapsed| elapsed < start_delay);
    if facts.has_terminating_pod() {
        return in_progress();
    }
    if let Some(pod) = one_by_one::unready_outdated_pod(facts, before).filter(|_| !is_starting) {
        return RolloutDecision::Act(RolloutAction::Evict(pod));
    }
    if is_starting || facts.live.iter().any(|it| it.rolling) {
        return one_by_one::stalled(facts, before).unwrap_or_else(in_progress);
    }
    if one_by_one::eviction_is_cheaper(facts) {
        return one_by_one::evict(facts, before);
    }
    if let Some(wait) = wait_for_ready(facts) {
        return wait;
    }
    let tries = before.map_or(0, |it| it.tries);
    let is_recent = facts
        .elapsed(before)
        .is_some_and(|elapsed| elapsed < RETRY_WINDOW);
    if (tries >= 2 && is_recent) || tries >= MAX_TRIES {
        let text = "no more pods are replaced: annotation asya.sh/roll has no effect on the target; restart its pods \
         yourself, or set spec.binding.rollout to OnRestart";
        return RolloutDecision::Halt(text.to_owned());
    }
    if let Some(budget) = facts
        .budget
        .filter(|_| facts.live.iter().any(|it| it.reduces_ready))
    {
        let text = format!(
            "PodDisruptionBudget {budget} allows no disruption, and a rollout may remove a pod before its \
             replacement is ready; waiting until it does"
        );
        return RolloutDecision::Wait(Reason::RolloutWaiting, text, RECHECK_INTERVAL);
    }
    if let Some(wait) = wait_for_slot(facts) {
        return wait;
    }
    let values = facts.live.iter().filter_map(|it| it.roll_value.as_deref());
    RolloutDecision::Act(RolloutAction::Annotate(next_value(
        facts.desired_hash,
        values,
    )))
}

/// Numbers a retry, because writing the same value again would change nothing.
fn next_value<'a>(desired: &str, live: impl Iterator<Item = &'a str>) -> String {
    match live.filter_map(|value| retry_number(desired, value)).max() {
        None => desired.to_owned(),
        Some(last) => format!("{desired}-{}", last.saturating_add(1)),
    }
}

/// Waits if the controller would delete a ready pod while others are not ready (SAFE-13).
fn wait_for_ready(facts: &RolloutFacts<'_>) -> Option<RolloutDecision> {
    let has_unready = |it: &&LiveObject| {
        it.desired_replicas
            .is_some_and(|desired| it.ready < desired)
    };
    let mut deleting_first = facts.live.iter().filter(|it| it.deletes_pod_first);
    let live = deleting_first.find(|it| has_unready(it) && it.ready > 0)?;
    let text = format!(
        "{}: not all of its pods are ready, and a rollout would replace a ready one; waiting until all are ready",
        live.object
    );
    Some(RolloutDecision::Wait(
        Reason::RolloutWaiting,
        text,
        RECHECK_INTERVAL,
    ))
}

#[cfg(test)]
mod tests;
