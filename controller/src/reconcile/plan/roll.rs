//! Whether pods that ran before a binding are replaced now, and how (docs/spec/binding.md, section 4).
//!
//! It converges on pods: what is asked for is that those which lack the actor's part of the sidecar are replaced, by
//! whomever. One annotation is written, or one pod evicted, at a time, after a dry run has shown that what comes instead
//! has the sidecar.

mod breaker;
mod one_by_one;

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;

use super::evict::{self, Availability};
use crate::reconcile::Reason;
use crate::reconcile::bound_pods::Lacking;
use crate::reconcile::conflict::{self, Sight, Specs, State};

pub use breaker::bare_in_a_row;
use breaker::halted;

/// A controller that was asked to replace pods has begun by then: the one of a workload, and one that makes workloads.
const BEGUN: Duration = Duration::from_secs(5);
const BEGUN_ABOVE: Duration = Duration::from_secs(30);
/// Annotations without effect within this time end the tries (ROLL-5), and so many whenever they were.
const IN_A_ROW: Duration = Duration::from_mins(1);
const MOST_TRIES: i32 = 5;
/// What no watch tells is looked at again: a rollout's progress, and a budget or a slot that becomes free.
const SOON: Duration = Duration::from_secs(5);
const LATER: Duration = Duration::from_secs(10);

/// What is told until the annotation is written again.
pub const TAKEN_BACK: &str = "the annotation that makes pods of the target restart was taken back; it is written again after a pause (condition Conflict says by whom)";

/// What is known of an object that an annotation is written to, or of a workload beside it.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the object"
)]
pub struct Live {
    /// The object.
    pub object: ObjectRef,
    /// The value of our annotation, where it is written to this one.
    pub value: Option<String>,
    /// Our containers stand in its pod template (BIND-50); told of an actor that goes.
    pub templated: bool,
    /// It is told by an annotation of ours that its queue scales it (SO-5).
    pub claimed: bool,
    /// It says by an annotation of ours who binds it (BIND-47).
    pub marked: bool,
    /// Its controller is replacing pods.
    pub rolling: bool,
    /// Pods that it asks for, where it says so.
    pub wanted: Option<i32>,
    /// Pods of it that are ready.
    pub ready: i32,
    /// Its controller deletes a pod before it makes the replacement, also while others are not ready.
    pub drains_first: bool,
    /// Its controller was told to replace none.
    pub paused: bool,
    /// A rollout of it may leave fewer pods ready than there are.
    pub lowers: bool,
    /// Its controller replaces a pod only when that is gone (ROLL-6).
    pub by_eviction: bool,
    /// Its pods ask for GPUs.
    pub gpus: bool,
}

impl Live {
    /// Annotations that an older actor has there are not ours to give up: only what stands in the template is (BIND-45).
    pub fn of_another(&mut self) {
        self.value = None;
        self.claimed = false;
        self.marked = false;
        self.paused &= self.templated;
    }
}

/// All that is decided by.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that the table asks for"
)]
pub struct Facts<'a> {
    /// When pods are replaced.
    pub rollout: BindingRollout,
    /// Now, whatever that says.
    pub at_once: bool,
    /// Pods get the sidecar by now (BIND-3).
    pub bound: bool,
    /// Where the model answers is known.
    pub has_url: bool,
    /// What pods are to say.
    pub wanted: &'a str,
    /// Pods that do not, and could.
    pub lacking: &'a [Lacking],
    /// Pods of the target that stay.
    pub matched: i32,
    /// Every pod of it.
    pub total: i32,
    /// How many of them can serve.
    pub availability: &'a Availability,
    /// How long a replacement may take to become ready.
    pub limit: Option<Duration>,
    /// How its pods are replaced.
    pub roll: &'a Roll,
    /// Nobody knows what its controller takes back.
    pub unknown_owner: bool,
    /// What is annotated, and what is rolled by that; empty while nothing has to be.
    pub live: &'a [Live],
    /// Tells the spec of the workloads from another.
    pub target: &'a str,
    /// A budget that allows no pod of these to go.
    pub budget: Option<&'a str>,
    /// Whether one more target may be rolled.
    pub has_slot: bool,
    /// What was done before.
    pub before: Option<&'a RolloutStatus>,
    /// How the annotation stands, if somebody takes it back.
    pub conflict: &'a State,
    /// A dry run has succeeded with these pods, or none is needed to tell.
    pub proved: bool,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Now.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Rolling {
    /// Nothing.
    Rest,
    /// Wait: pods are being replaced, or may not be yet.
    Wait(Reason, String, Duration),
    /// Nothing any more, until a spec changes.
    Halt(String),
    /// Nothing, until a replacement becomes ready that has taken too long.
    Stall(String),
    /// Somebody has taken the annotation back (CONF-2).
    Lost(Lost),
    /// Nothing any more, until a spec changes: somebody takes the annotation back.
    Leave,
    /// This, after a dry run.
    Act(Act),
}

/// An annotation that somebody has taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// The object that had it.
    pub object: ObjectRef,
    /// The specs of now.
    pub specs: Specs,
    /// Pods are evicted from now on.
    pub last: bool,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// The dry run alone: there is no pod that could tell.
    Prove,
    /// Give these objects this annotation.
    Annotate(String),
    /// Evict this pod, so that another is made.
    Evict(Lacking),
}

/// Decides about one target.
pub fn decide(facts: &Facts<'_>) -> Rolling {
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

/// CONF-2
fn contested(facts: &Facts<'_>, before: Option<&RolloutStatus>) -> Option<Rolling> {
    let mut annotated = facts.live.iter().filter(|it| facts.annotates(it));
    let missing = annotated.find(|it| !facts.is_ours(it));
    let sight = Sight {
        needed: true,
        written: before.is_some_and(|it| it.tries > 0),
        stands: missing.is_none(),
    };
    let specs = facts.specs();
    match facts.conflict.decide(sight, &specs, facts.now) {
        conflict::Step::Rest | conflict::Step::Write => None,
        conflict::Step::Lost => missing.map(|it| {
            Rolling::Lost(Lost {
                object: it.object.clone(),
                specs,
                last: facts.unknown_owner && matches!(facts.roll, Roll::AnnotateTemplate(_)),
            })
        }),
        conflict::Step::Wait(wait) => Some(Rolling::Wait(
            Reason::RolloutWaiting,
            TAKEN_BACK.to_owned(),
            wait,
        )),
        conflict::Step::Stop => Some(Rolling::Leave),
    }
}

impl Facts<'_> {
    /// Whether what was done before was done for the same: another value, or another spec, begins anew.
    fn is_about(&self, before: &RolloutStatus) -> bool {
        before.value == self.wanted && (!before.halted || self.is_as_halted(before))
    }

    fn is_as_halted(&self, before: &RolloutStatus) -> bool {
        before.generation == self.generation && before.target == self.target
    }

    fn specs(&self) -> Specs {
        Specs {
            generation: self.generation,
            target: self.target.to_owned(),
        }
    }

    /// Whether our annotation is written to this one.
    fn annotates(&self, live: &Live) -> bool {
        match self.roll {
            Roll::AnnotateTemplate(_) => true,
            Roll::Annotate(object, _) => *object == live.object,
            Roll::Evict => false,
        }
    }

    fn is_ours(&self, live: &Live) -> bool {
        let value = live.value.as_deref();
        value.is_some_and(|value| number(self.wanted, value).is_some())
    }

    /// What is known about replacing `candidates` one by one.
    fn evicting<'b>(
        &'b self,
        candidates: &'b [Lacking],
        before: Option<&RolloutStatus>,
    ) -> evict::Facts<'b> {
        evict::Facts {
            candidates,
            availability: self.availability,
            present: self.matched,
            before: before.and_then(|it| it.pods),
            since: before.and_then(|it| it.since.as_ref()).map(|it| it.0),
            limit: self.limit,
            now: self.now,
        }
    }

    /// A pod of the target is on its way out.
    fn is_going(&self) -> bool {
        self.total > self.matched || self.availability.going
    }

    fn since(&self, before: Option<&RolloutStatus>) -> Option<Duration> {
        let since = before?.since.as_ref()?;
        self.now.duration_since(since.0).try_into().ok()
    }
}

/// A controller that nobody knows and that takes the annotation back leaves eviction.
fn is_evicted(facts: &Facts<'_>) -> bool {
    let given_up = matches!(facts.conflict, State::Stopped(specs) if *specs == facts.specs());
    let taken_back = facts.unknown_owner && given_up;
    match facts.roll {
        Roll::Evict => true,
        Roll::AnnotateTemplate(_) => taken_back || facts.live.iter().any(|it| it.by_eviction),
        Roll::Annotate(..) => false,
    }
}

fn annotate(facts: &Facts<'_>, before: Option<&RolloutStatus>) -> Rolling {
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

/// The same value again would change nothing.
fn next_value<'a>(wanted: &str, live: impl Iterator<Item = &'a str>) -> String {
    match live.filter_map(|value| number(wanted, value)).max() {
        None => wanted.to_owned(),
        Some(last) => format!("{wanted}-{}", last.saturating_add(1)),
    }
}

/// How often the value was changed only to be another one; `None`: it asks for something else.
fn number(wanted: &str, value: &str) -> Option<u32> {
    match value.strip_prefix(wanted)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok(),
    }
}

/// Such a controller would go on to take a ready pod (SAFE-13).
fn waits_for_ready(facts: &Facts<'_>) -> Option<Rolling> {
    let lacks_some = |it: &&Live| it.wanted.is_some_and(|wanted| it.ready < wanted);
    let mut drained = facts.live.iter().filter(|it| it.drains_first);
    let live = drained.find(|it| lacks_some(it) && it.ready > 0)?;
    let text = format!(
        "{}: not all of its pods are ready, and a rollout would take one that is; waiting until they are",
        live.object
    );
    Some(Rolling::Wait(Reason::RolloutWaiting, text, LATER))
}

fn waits_for_slot(facts: &Facts<'_>) -> Option<Rolling> {
    let text =
        "as many other targets are being rolled as may be at a time; waiting for one of them";
    (!facts.has_slot).then(|| Rolling::Wait(Reason::RolloutWaiting, text.to_owned(), LATER))
}

fn runs() -> Rolling {
    let text = "pods of the target are being replaced by pods with the sidecar";
    Rolling::Wait(Reason::RolloutInProgress, text.to_owned(), SOON)
}

#[cfg(test)]
mod tests;
