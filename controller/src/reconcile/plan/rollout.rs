//! Decides whether and how to replace pods that started before a binding (docs/spec/binding.md, section 4).
//!
//! Level-triggered on pods: those without the actor's current sidecar have to be replaced, by whichever controller.
//! Each step writes one annotation or evicts one pod, after a dry run has shown that the replacement gets the sidecar.

mod halt;
pub mod inputs;
mod one_by_one;
pub mod params;
mod stale_webhook;

use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{CaveatReason, RolloutMethod};
use halt::halted;
use k8s_openapi::jiff::Timestamp;
use one_by_one::Evictions;
use stale_webhook::wait_for_webhook;

use crate::reconcile::contention::history::ContentionHistory;
use crate::reconcile::contention::{ContestedPart, FieldDecision, FieldView, SpecRevision};
use crate::reconcile::model::binding::ActorInTemplate;
use crate::reconcile::model::drain::DrainState;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::RolloutOutcome;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::target_pods::actor_hash;
use crate::reconcile::plan::controller_rollout::RolloutBlocker;
use crate::reconcile::plan::rollout::inputs::{
    AnnotationConflict, RolloutAction, RolloutDecision, RolloutInputs,
};

/// How long the controller of a workload, or that of its owner, may take to start replacing pods.
const START_DELAY: Duration = Duration::from_secs(5);
const OWNER_START_DELAY: Duration = Duration::from_secs(30);
/// Halt after a second attempt without effect if the last one was this recent, or after [`MAX_ATTEMPTS`] (ROLL-5).
const RETRY_WINDOW: Duration = Duration::from_mins(1);
const MAX_ATTEMPTS: i32 = 5;

/// Plans the rollout of the target's pods; `None` while too little is known, or while the actor's deletion waits until
/// its queue is empty.
pub(super) fn plan_rollout(
    observed: &Observed,
    history: Option<&ContentionHistory<'_>>,
    now: Timestamp,
) -> Option<RolloutDecision> {
    let bound = observed.desired_binding()?;
    let rollout = observed.rollout()?;
    let resolved = observed.resolved()?;
    let counts = &rollout.pod_counts;
    if !may_replace_pods(observed.drain.as_ref(), counts.pods.injected) {
        return None;
    }
    if resolved
        .other_actor_in_template(&observed.actor.metadata.uid)
        .is_some()
    {
        // Removing the other sidecar from the pod template replaces the pods, so a rollout before that would restart
        // them twice (BIND-45).
        let owner = ActorInTemplate::describe(observed.resolved_binding()?.template_actor.as_ref());
        return Some(RolloutDecision::wait(format!(
            "the pod template of the target still contains the sidecar of {owner}; its pods are replaced when that is \
             removed"
        )));
    }
    let target = &resolved.target;
    let roll_now = observed.actor.annotations.roll_now;
    let hash = bound.injected_hash.as_deref()?;
    let unknown = CaveatReason::UnknownOwner;
    let contention = history?.state(ContestedPart::Roll);
    Some(decide(&RolloutInputs {
        rollout_policy: bound.rollout,
        roll_now,
        in_effect: observed.previous.bound_since.is_some(),
        has_url: bound.has_url || target.server.url.is_some(),
        desired_hash: if roll_now {
            hash
        } else {
            actor_hash(Some(hash))?
        },
        outdated: counts.replaceable(roll_now),
        active: counts.pods.matched,
        total: counts.total,
        availability: &rollout.availability,
        limit: observed.progress_limit(),
        method: &target.roll,
        unknown_owner: target
            .warnings
            .iter()
            .any(|warning| warning.reason == unknown),
        objects: &rollout.objects,
        workload_specs_hash: &rollout.workload_specs_hash,
        blocking_pdb: rollout.blocking_pdb.as_deref(),
        has_slot: rollout.has_slot,
        refused_eviction: rollout.refused_eviction.as_ref(),
        previous: observed.previous.rollout.as_ref(),
        contention: &contention,
        injection_verified: observed.is_injection_verified(),
        generation: observed.actor.generation,
        now,
    }))
}

/// Decides the next step of the rollout of one target.
pub fn decide(inputs: &RolloutInputs<'_>) -> RolloutDecision {
    if !inputs.in_effect || !inputs.has_url {
        return RolloutDecision::NotNeeded;
    }
    if inputs.outdated.is_empty() {
        let is_verified = inputs.active > 0 || inputs.injection_verified;
        return if is_verified {
            RolloutDecision::NotNeeded
        } else {
            RolloutDecision::Act(RolloutAction::VerifyInjection)
        };
    }
    if inputs.rollout_policy == BindingRollout::OnRestart && !inputs.roll_now {
        return RolloutDecision::NotNeeded;
    }
    let previous = inputs
        .previous
        .filter(|previous| inputs.is_continued(previous));
    if let Some(halted) = halted(inputs, previous) {
        return halted;
    }
    if let Some(paused) = inputs.objects.iter().find(|it| it.paused) {
        return RolloutDecision::wait(format!(
            "{}: spec.paused is true, so no pod is replaced; resume the rollout",
            paused.object
        ));
    }
    let evictions = Evictions::new(inputs, previous);
    let decision = if evictions.required {
        evictions.decision
    } else {
        check_conflict(inputs, previous).unwrap_or_else(|| annotate(inputs, previous, evictions))
    };
    wait_for_webhook(inputs, previous, &decision)
        .or_else(|| wait_after_refusal(inputs, &decision))
        .unwrap_or(decision)
}

/// Waits after a refused eviction, whatever happens to the pods meanwhile (ROLL-4 (c)).
fn wait_after_refusal(
    inputs: &RolloutInputs<'_>,
    decision: &RolloutDecision,
) -> Option<RolloutDecision> {
    let evicts = matches!(decision, RolloutDecision::Act(RolloutAction::Evict(_)));
    let refused = inputs.refused_eviction.filter(|_| evicts)?;
    Some(RolloutDecision::Wait {
        message: refused.message.clone(),
        requeue_after: refused.time_left(inputs.now)?,
    })
}

/// The decision if our annotation was reverted; `None` if the rollout may continue (CONF-2).
fn check_conflict(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> Option<RolloutDecision> {
    let mut annotated = inputs
        .objects
        .iter()
        .filter(|object| inputs.annotates(object));
    let missing = annotated.find(|object| !inputs.has_our_value(object));
    let view = FieldView {
        needed: true,
        was_set: previous.is_some_and(|previous| previous.tries > 0),
        has_desired_value: missing.is_none(),
    };
    match inputs
        .contention
        .decide(view, &inputs.revision(), inputs.now)
    {
        FieldDecision::Keep | FieldDecision::AwaitReset(_) | FieldDecision::Write => None,
        FieldDecision::RecordConflict => missing.map(|object| {
            RolloutDecision::RecordConflict(AnnotationConflict {
                object: object.object.clone(),
                yields: inputs.unknown_owner
                    && matches!(inputs.method, RolloutMethod::AnnotateTemplate(_)),
            })
        }),
        FieldDecision::Wait(wait) => Some(RolloutDecision::Wait {
            message: RolloutOutcome::CONFLICT_MESSAGE.to_owned(),
            requeue_after: wait,
        }),
        FieldDecision::Yield => Some(RolloutDecision::Yield),
    }
}

/// Decides about a rollout that the annotation triggers.
fn annotate(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
    evictions: Evictions,
) -> RolloutDecision {
    let start_delay = match inputs.method {
        RolloutMethod::Annotate(..) => OWNER_START_DELAY,
        RolloutMethod::AnnotateTemplate(_) | RolloutMethod::Evict => START_DELAY,
    };
    let is_starting = inputs
        .elapsed(previous)
        .is_some_and(|elapsed| elapsed < start_delay);
    if inputs.has_terminating_pod() {
        return RolloutDecision::InProgress;
    }
    if let Some(pod) = evictions.unready_outdated_pod
        && !is_starting
    {
        return RolloutDecision::Act(RolloutAction::Evict(pod));
    }
    if is_starting || inputs.objects.iter().any(|it| it.rolling) {
        return evictions.stalled.unwrap_or(RolloutDecision::InProgress);
    }
    if evictions.preferred {
        return evictions.decision;
    }
    if let Some(blocker) = RolloutBlocker::loses_ready_pod(inputs.objects) {
        return RolloutDecision::wait(blocker.to_string());
    }
    if let Some(halted) = halt_without_effect(inputs, previous) {
        return halted;
    }
    if let Some(blocker) = RolloutBlocker::exceeds_budget(inputs.objects, inputs.blocking_pdb) {
        return RolloutDecision::wait(blocker.to_string());
    }
    if !inputs.has_slot {
        return RolloutDecision::AwaitSlot;
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

/// Halts if writing the annotation had no effect several times (ROLL-5).
fn halt_without_effect(
    inputs: &RolloutInputs<'_>,
    previous: Option<&RolloutStatus>,
) -> Option<RolloutDecision> {
    let tries = previous.map_or(0, |it| it.tries);
    let is_recent = inputs
        .elapsed(previous)
        .is_some_and(|elapsed| elapsed < RETRY_WINDOW);
    ((tries >= 2 && is_recent) || tries >= MAX_ATTEMPTS).then(|| {
        RolloutDecision::Halted(format!(
            "no more pods are replaced: after annotation asya.sh/roll was written {tries} times, the target still has \
             pods without the current sidecar; check the reasons in status.pods, then restart its pods yourself, or \
             set spec.binding.rollout to OnRestart"
        ))
    })
}

/// Appends a retry number, because writing the same value again would change nothing.
fn next_value<'a>(desired: &str, values: impl Iterator<Item = &'a str>) -> String {
    match values
        .filter_map(|value| retry_number(desired, value))
        .max()
    {
        None => desired.to_owned(),
        Some(last) => format!("{desired}-{}", last.saturating_add(1)),
    }
}

impl RolloutInputs<'_> {
    /// Whether the recorded rollout has the same value and, if it was halted, the same specs. Otherwise the rollout
    /// starts over.
    pub fn is_continued(&self, previous: &RolloutStatus) -> bool {
        previous.value == self.desired_hash && (!previous.halted || self.has_halted_specs(previous))
    }

    pub fn has_halted_specs(&self, previous: &RolloutStatus) -> bool {
        previous.generation == self.generation
            && previous.workload_specs_hash == self.workload_specs_hash
    }

    pub fn revision(&self) -> SpecRevision {
        SpecRevision {
            generation: self.generation,
            spec_hash: self.workload_specs_hash.to_owned(),
        }
    }

    /// Whether the annotation that rolls pods is written to this object.
    pub fn annotates(&self, candidate: &TargetObject) -> bool {
        match self.method {
            RolloutMethod::AnnotateTemplate(_) => true,
            RolloutMethod::Annotate(object, _) => *object == candidate.object,
            RolloutMethod::Evict => false,
        }
    }

    pub fn has_our_value(&self, candidate: &TargetObject) -> bool {
        let value = candidate.roll_value.as_deref();
        value.is_some_and(|value| retry_number(self.desired_hash, value).is_some())
    }

    pub fn has_terminating_pod(&self) -> bool {
        self.total > self.active || self.availability.has_terminating
    }

    pub fn elapsed(&self, previous: Option<&RolloutStatus>) -> Option<Duration> {
        let since = previous?.since.as_ref()?;
        self.now.duration_since(since.0).try_into().ok()
    }
}

/// The retry number appended to `desired`, 0 if there is none; `None` if the value has another hash.
pub fn retry_number(desired: &str, value: &str) -> Option<u32> {
    match value.strip_prefix(desired)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse().ok(),
    }
}

/// Whether a target's pods may be replaced to inject the sidecar. Not while the deletion waits until the queue is empty
/// and some have it: the deletion has raised the generation, which would restart an ended rollout.
pub fn may_replace_pods(drain: Option<&DrainState>, injected: i32) -> bool {
    !matches!(drain, Some(DrainState::Waiting(_))) || injected == 0
}

#[cfg(test)]
mod tests;
