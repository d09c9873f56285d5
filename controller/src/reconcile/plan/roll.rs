//! Whether and how pods that started before a binding are replaced now (docs/spec/binding.md, section 4).
//!
//! It converges on pods: those that lack the actor's part of the sidecar have to be replaced, by any controller. It
//! writes one annotation or evicts one pod at a time, after a dry run has shown that the replacement gets the sidecar.

mod breaker;
pub mod facts;
pub mod inputs;
mod one_by_one;

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::Roll;
use breaker::halted;

use crate::fault::Reason;
use crate::reconcile::contention::{self, FieldView, State};
use crate::reconcile::model::rollout::Live;
use crate::reconcile::plan::roll::facts::{
    Act, LATER, Lost, Rolling, RolloutFacts, number, runs, waits_for_slot,
};

pub use breaker::bare_in_a_row;

/// How long a workload's controller, or one that manages workloads, may take to start replacing pods.
const BEGUN: Duration = Duration::from_secs(5);
const BEGUN_ABOVE: Duration = Duration::from_secs(30);
/// Two annotations without effect within this time end the attempts (ROLL-5), as do [`MOST_TRIES`] at any time.
const IN_A_ROW: Duration = Duration::from_mins(1);
const MOST_TRIES: i32 = 5;

/// Reported until the annotation is written again.
pub const TAKEN_BACK: &str = "the annotation that makes pods of the target restart was taken back; it is written again after a pause (condition Conflict says by whom)";

/// Decides for one target.
pub fn decide(facts: &RolloutFacts<'_>) -> Rolling {
    if !facts.bound || !facts.has_url {
        return Rolling::Rest;
    }
    if facts.lacking.is_empty() {
        let tells = facts.matched > 0 || facts.proved;
        return if tells {
            Rolling::Rest
        } else {
            Rolling::Act(Act::Prove)
        };
    }
    if facts.rollout == BindingRollout::OnRestart && !facts.at_once {
        return Rolling::Rest;
    }
    let before = facts.before.filter(|it| facts.is_about(it));
    if let Some(halt) = halted(facts, before) {
        return halt;
    }
    if let Some(paused) = facts.live.iter().find(|it| it.paused) {
        let text = format!(
            "{}: spec.paused is true, so no pod is replaced; resume it",
            paused.object
        );
        return Rolling::Wait(Reason::RolloutWaiting, text, LATER);
    }
    if is_evicted(facts) {
        return one_by_one::evict(facts, before);
    }
    contested(facts, before).unwrap_or_else(|| annotate(facts, before))
}

/// What to do if our annotation was taken back; `None`: go on (CONF-2).
fn contested(facts: &RolloutFacts<'_>, before: Option<&RolloutStatus>) -> Option<Rolling> {
    let mut annotated = facts.live.iter().filter(|it| facts.annotates(it));
    let missing = annotated.find(|it| !facts.is_ours(it));
    let sight = FieldView {
        needed: true,
        written: before.is_some_and(|it| it.tries > 0),
        stands: missing.is_none(),
    };
    let specs = facts.specs();
    match facts.conflict.decide(sight, &specs, facts.now) {
        contention::FieldStep::Rest | contention::FieldStep::Write => None,
        contention::FieldStep::Lost => missing.map(|it| {
            Rolling::Lost(Lost {
                object: it.object.clone(),
                specs,
                last: facts.unknown_owner && matches!(facts.roll, Roll::AnnotateTemplate(_)),
            })
        }),
        contention::FieldStep::Wait(wait) => Some(Rolling::Wait(
            Reason::RolloutWaiting,
            TAKEN_BACK.to_owned(),
            wait,
        )),
        contention::FieldStep::Stop => Some(Rolling::Leave),
    }
}

/// Whether pods are evicted. An unknown controller that takes the annotation back leaves no other way.
fn is_evicted(facts: &RolloutFacts<'_>) -> bool {
    let given_up = matches!(facts.conflict, State::Stopped(specs) if *specs == facts.specs());
    let taken_back = facts.unknown_owner && given_up;
    match facts.roll {
        Roll::Evict => true,
        Roll::AnnotateTemplate(_) => taken_back || facts.live.iter().any(|it| it.by_eviction),
        Roll::Annotate(..) => false,
    }
}

fn annotate(facts: &RolloutFacts<'_>, before: Option<&RolloutStatus>) -> Rolling {
    let begun = match facts.roll {
        Roll::Annotate(..) => BEGUN_ABOVE,
        Roll::AnnotateTemplate(_) | Roll::Evict => BEGUN,
    };
    let waits = facts.since(before).is_some_and(|since| since < begun);
    if facts.is_going() {
        return runs();
    }
    if let Some(pod) = one_by_one::broken(facts, before).filter(|_| !waits) {
        return Rolling::Act(Act::Evict(pod));
    }
    if waits || facts.live.iter().any(|it| it.rolling) {
        return one_by_one::stalled(facts, before).unwrap_or_else(runs);
    }
    if one_by_one::spares(facts) {
        return one_by_one::evict(facts, before);
    }
    if let Some(wait) = waits_for_ready(facts) {
        return wait;
    }
    let tries = before.map_or(0, |it| it.tries);
    let in_a_row = facts.since(before).is_some_and(|since| since < IN_A_ROW);
    if (tries >= 2 && in_a_row) || tries >= MOST_TRIES {
        let text = "no further pod is replaced: annotation asya.sh/roll has no effect on the target; restart its pods yourself, or set spec.binding.rollout to OnRestart";
        return Rolling::Halt(text.to_owned());
    }
    if let Some(budget) = facts
        .budget
        .filter(|_| facts.live.iter().any(|it| it.lowers))
    {
        let text = format!(
            "PodDisruptionBudget {budget} allows no pod to go, and a rollout may take one before its replacement is ready; waiting until it does"
        );
        return Rolling::Wait(Reason::RolloutWaiting, text, LATER);
    }
    if let Some(wait) = waits_for_slot(facts) {
        return wait;
    }
    let values = facts.live.iter().filter_map(|it| it.value.as_deref());
    Rolling::Act(Act::Annotate(next_value(facts.wanted, values)))
}

/// Writing the same value again would change nothing, so number it.
fn next_value<'a>(wanted: &str, live: impl Iterator<Item = &'a str>) -> String {
    match live.filter_map(|value| number(wanted, value)).max() {
        None => wanted.to_owned(),
        Some(last) => format!("{wanted}-{}", last.saturating_add(1)),
    }
}

/// Wait if the controller would delete a ready pod while others are not ready (SAFE-13).
fn waits_for_ready(facts: &RolloutFacts<'_>) -> Option<Rolling> {
    let lacks_some = |it: &&Live| it.wanted.is_some_and(|wanted| it.ready < wanted);
    let mut drained = facts.live.iter().filter(|it| it.drains_first);
    let live = drained.find(|it| lacks_some(it) && it.ready > 0)?;
    let text = format!(
        "{}: not all of its pods are ready, and a rollout would take one that is; waiting until they are",
        live.object
    );
    Some(Rolling::Wait(Reason::RolloutWaiting, text, LATER))
}

#[cfg(test)]
mod tests;
