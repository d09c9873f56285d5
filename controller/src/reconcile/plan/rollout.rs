//! Decides whether and how to replace pods that started before a binding (docs/spec/binding.md, section 4).
//!
//! Level-triggered on pods: those without the actor's current sidecar have to be replaced, by whichever controller.
//! Each step writes one annotation or evicts one pod, after a dry run has shown that the replacement gets the sidecar.

mod halt;
pub mod inputs;
mod one_by_one;
pub mod params;

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::Roll;
use asya_shared::roll::requires_eviction;
use halt::halted;

use crate::fault::Reason;
use crate::reconcile::contention::{ContentionState, FieldDecision, FieldView};
use crate::reconcile::model::outcome::RolloutOutcome;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::plan::rollout::inputs::{
    AnnotationConflict, RECHECK_INTERVAL, RolloutAction, RolloutDecision, RolloutInputs,
    in_progress, retry_number, wait_for_slot,
};

/// How long the controller of a workload, or that of its owner, may take to start replacing pods.
const START_DELAY: Duration = Duration::from_secs(5);
const OWNER_START_DELAY: Duration = Duration::from_secs(30);
/// Two annotations without effect within this time end the attempts, as do [`MAX_TRIES`] at any time (ROLL-5).
const RETRY_WINDOW: Duration = Duration::from_mins(1);
const MAX_TRIES: i32 = 5;

/// Decides the next step of the rollout of one target.
pub fn decide(inputs: &RolloutInputs<'_>) -> RolloutDecision {
    if !inputs.bound || !inputs.has_url {
        return RolloutDecision::NotNeeded;
    }
    if inputs.outdated.is_empty() {
        let is_verified = inputs.matched > 0 || inputs.injection_verified;
        return if is_verified {
            RolloutDecision::NotNeeded
        } else {
            RolloutDecision::Act(RolloutAction::VerifyInjection)
        };
    }
    if inputs.rollout == BindingRollout::OnRestart && !inputs.roll_now {
        return RolloutDecision::NotNeeded;
    }
    let previous = inputs.previous.filter(|it| inputs.is_continued(it));
    if let Some(halt) = halted(inputs, previous) {
        return halt;
    }
    if let Some(paused) = inputs.objects.iter().find(|it| it.paused) {
        let text = format!(
            "{}: spec.paused is true, so no pod is replaced; resume the rollout",
            paused.object
        );
        return RolloutDecision::Wait(Reason::RolloutWaiting, text, RECHECK_INTERVAL);
    }
    if uses_eviction(inputs) {
        return one_by_one::evict(inputs, previous);
    }
    check_conflict(inputs, previous).unwrap_or_else(|| annotate(inputs, previous))
}

/// The decision if our annotation was reverted; `None` if the rollout may continue (CONF-2).
fn check_conflict(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> Option<RolloutDecision> {
    let mut annotated = inputs.objects.iter().filter(|it| inputs.annotates(it));
    let missing = annotated.find(|it| !inputs.has_our_value(it));
    let view = FieldView {
        needed: true,
        written: previous.is_some_and(|it| it.tries > 0),
        in_place: missing.is_none(),
    };
    match inputs
        .contention
        .decide(view, &inputs.revision(), inputs.now)
    {
        FieldDecision::Keep | FieldDecision::AwaitReset(_) | FieldDecision::Write => None,
        FieldDecision::RecordConflict => missing.map(|it| {
            RolloutDecision::RecordConflict(AnnotationConflict {
                object: it.object.clone(),
                yields: inputs.unknown_owner && matches!(inputs.roll, Roll::AnnotateTemplate(_)),
            })
        }),
        FieldDecision::Wait(wait) => Some(RolloutDecision::Wait(
            Reason::RolloutWaiting,
            RolloutOutcome::CONFLICT_MESSAGE.to_owned(),
            wait,
        )),
        FieldDecision::Yield => Some(RolloutDecision::Yield),
    }
}

/// Whether to evict pods, which is the only way left if an unknown controller reverts the annotation.
fn uses_eviction(inputs: &RolloutInputs<'_>) -> bool {
    let yielded = matches!(inputs.contention, ContentionState::Yielded(revision) if *revision == inputs.revision());
    let is_template = matches!(inputs.roll, Roll::AnnotateTemplate(_));
    let reverted = is_template && inputs.unknown_owner && yielded;
    reverted || requires_eviction(inputs.roll, inputs.objects.iter().map(|it| it.by_eviction))
}

fn annotate(inputs: &RolloutInputs<'_>, previous: Option<&RolloutStatus>) -> RolloutDecision {
    let start_delay = match inputs.roll {
        Roll::Annotate(..) => OWNER_START_DELAY,
        Roll::AnnotateTemplate(_) | Roll::Evict => START_DELAY,
    };
    let is_starting = inputs
        .elapsed(previous)
        .is_some_and(|elapsed| elapsed < start_delay);
    if inputs.has_terminating_pod() {
        return in_progress();
    }
    if let Some(pod) = one_by_one::unready_outdated_pod(inputs, previous).filter(|_| !is_starting) {
        return RolloutDecision::Act(RolloutAction::Evict(pod));
    }
    if is_starting || inputs.objects.iter().any(|it| it.rolling) {
        return one_by_one::stalled(inputs, previous).unwrap_or_else(in_progress);
    }
    if one_by_one::eviction_is_cheaper(inputs) {
        return one_by_one::evict(inputs, previous);
    }
    if let Some(wait) = wait_for_ready(inputs) {
        return wait;
    }
    let tries = previous.map_or(0, |it| it.tries);
    let is_recent = inputs
        .elapsed(previous)
        .is_some_and(|elapsed| elapsed < RETRY_WINDOW);
    if (tries >= 2 && is_recent) || tries >= MAX_TRIES {
        let text = "no more pods are replaced: annotation asya.sh/roll has no effect on the target; restart its pods \
         yourself, or set spec.binding.rollout to OnRestart";
        return RolloutDecision::Halt(text.to_owned());
    }
    if let Some(budget) = inputs
        .budget
        .filter(|_| inputs.objects.iter().any(|it| it.reduces_ready))
    {
        let text = format!(
            "PodDisruptionBudget {budget} allows no disruption, and a rollout may remove a pod before its \
             replacement is ready; waiting until the budget allows one"
        );
        return RolloutDecision::Wait(Reason::RolloutWaiting, text, RECHECK_INTERVAL);
    }
    if let Some(wait) = wait_for_slot(inputs) {
        return wait;
    }
    let values = inputs
        .objects
        .iter()
        .filter_map(|it| it.roll_value.as_deref());
    RolloutDecision::Act(RolloutAction::Annotate(next_value(
        inputs.desired_hash,
        values,
    )))
}

/// Numbers a retry, because writing the same value again would change nothing.
fn next_value<'a>(desired: &str, values: impl Iterator<Item = &'a str>) -> String {
    match values
        .filter_map(|value| retry_number(desired, value))
        .max()
    {
        None => desired.to_owned(),
        Some(last) => format!("{desired}-{}", last.saturating_add(1)),
    }
}

/// Waits if the controller would delete a ready pod while others are not ready (SAFE-13).
fn wait_for_ready(inputs: &RolloutInputs<'_>) -> Option<RolloutDecision> {
    let has_unready = |it: &&TargetObject| {
        it.desired_replicas
            .is_some_and(|desired| it.ready < desired)
    };
    let mut deleting_first = inputs.objects.iter().filter(|it| it.deletes_pod_first);
    let not_ready = deleting_first.find(|it| has_unready(it) && it.ready > 0)?;
    let text = format!(
        "{}: not all of its pods are ready, and a rollout would replace a ready one; waiting until all are ready",
        not_ready.object
    );
    Some(RolloutDecision::Wait(
        Reason::RolloutWaiting,
        text,
        RECHECK_INTERVAL,
    ))
}

#[cfg(test)]
mod tests;
