//! Removes the sidecars of an actor being deleted from the pods of its target (BIND-43, BIND-44).

mod inputs;
mod one_by_one;

use std::time::Duration;

use asya_shared::api::RolloutStatus;
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::jiff::Timestamp;

use self::inputs::LATE_EVICTION_INTERVAL;
use self::one_by_one::{one_by_one, unready_first};
use super::controller_rollout::RolloutBlocker;
use super::rollout::params::{SlotChange, new_slot, slot_expiry};
use crate::fault::Reason;
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::reported::is_reported;
use crate::reconcile::model::rollout::{
    ObservedUnbinding, TargetObject, UNBIND_MARKER, UnbindLimits, has_target_pods,
};
use crate::reconcile::model::target_pods::PodToReplace;

pub use self::inputs::{UnbindInputs, UnbindStep, UnresolvedTarget};

/// By then the garbage collector has usually deleted the pods of a deleted target.
const GARBAGE_COLLECTION_LIMIT: Duration = Duration::from_secs(30);

/// Parameters for the execution of an [`UnbindStep`].
#[derive(Debug, Default)]
pub struct UnbindParams {
    /// Objects that carry our annotation, but may no longer belong to the target.
    pub stale_objects: Vec<ObjectRef>,
    /// The workload whose pod template has our fields.
    pub template: Option<ObjectRef>,
    /// Where to give up or change our annotations.
    pub annotations: Option<RolloutMethod>,
    /// Workloads with our annotation that names the binding actor.
    pub actor_annotated: Vec<ObjectRef>,
    /// Availability of the target's pods, on which an eviction relies.
    pub availability: Availability,
    /// An earlier reconcile has reported what blocks unbinding.
    pub reported: bool,
    pub slot: Option<SlotChange>,
}

impl UnbindParams {
    pub fn new(observed: &Observed, step: &UnbindStep, now: Timestamp) -> Self {
        let Some(unbinding) = observed.unbinding() else {
            return Self::default();
        };
        let writes = matches!(step, UnbindStep::GiveUp | UnbindStep::ChangeValue);
        let actor = &*observed.actor.metadata.uid;
        let mut objects = unbinding.objects.iter();
        let template = objects
            .find(|it| it.has_template_fields_of(actor))
            .filter(|_| *step == UnbindStep::GiveUp);
        let actor_annotated = unbinding.objects.iter();
        let actor_annotated = actor_annotated.filter(|it| it.has_actor_annotation);
        let annotated = unbinding.objects.iter().any(TargetObject::has_annotation);
        let roll = unbinding.roll.clone().filter(|_| writes);
        Self {
            stale_objects: unbinding
                .stale_objects
                .iter()
                .filter(|_| writes)
                .cloned()
                .collect(),
            annotations: roll.filter(|_| template.is_none() || annotated),
            template: template.map(|it| it.object.clone()),
            actor_annotated: actor_annotated.map(|it| it.object.clone()).collect(),
            availability: unbinding.availability.clone().unwrap_or_default(),
            reported: is_reported(observed, Reason::UnbindBlocked),
            slot: slot_change(observed, unbinding, step, now),
        }
    }
}

/// Unbinding holds a slot from its first write or eviction until no pod has the sidecar (SAFE-15).
fn slot_change(
    observed: &Observed,
    unbinding: &ObservedUnbinding,
    step: &UnbindStep,
    now: Timestamp,
) -> Option<SlotChange> {
    match step {
        UnbindStep::Done => Some(SlotChange::ReleaseAndReset),
        // A pod that is not ready needs no slot.
        UnbindStep::Unknown | UnbindStep::EvictUnready(_) => None,
        UnbindStep::AwaitSlot => Some(SlotChange::Wait),
        UnbindStep::Blocked(_) | UnbindStep::Stalled(_) => Some(SlotChange::Release),
        UnbindStep::Evict(_) => Some(new_slot(observed, now)),
        UnbindStep::GiveUp | UnbindStep::ChangeValue => {
            unbinding.has_target_pods().then(|| new_slot(observed, now))
        }
        UnbindStep::InProgress => {
            let acted = last_action(observed)?.since.as_ref()?;
            slot_expiry(observed, acted.0, now).map(SlotChange::Acquire)
        }
    }
}

/// What unbinding recorded when it last acted.
pub(super) fn last_action(observed: &Observed) -> Option<&RolloutStatus> {
    let rollout = observed.previous.rollout.as_ref();
    rollout.filter(|rollout| rollout.value == UNBIND_MARKER)
}

/// Decides the next step for an actor that is being deleted.
pub fn decide(inputs: &UnbindInputs<'_>) -> UnbindStep {
    let step = next_step(inputs);
    let step = match &step {
        UnbindStep::GiveUp | UnbindStep::ChangeValue => before_rollout(inputs).unwrap_or(step),
        UnbindStep::Evict(pod) if inputs.is_ready(pod) => inputs.await_slot().unwrap_or(step),
        _ => step,
    };
    match step {
        UnbindStep::Evict(_) | UnbindStep::EvictUnready(_) => {
            inputs.after_refusal().unwrap_or(step)
        }
        step => step,
    }
}

/// The step before the target's controller may start to replace its pods, with or without the sidecar (ROLL-2 (d), (e),
/// SAFE-13, SAFE-14).
fn before_rollout(inputs: &UnbindInputs<'_>) -> Option<UnbindStep> {
    if !has_target_pods(inputs.pods, inputs.availability) || inputs.since_last_action.is_some() {
        return None;
    }
    if let Some(blocker) = RolloutBlocker::stops_all_pods(inputs.objects) {
        return Some(UnbindStep::Blocked(blocker.to_string()));
    }
    // Our fields of the pod template roll the pods as its owner would (BIND-50).
    if !inputs.has_annotation() {
        return None;
    }
    if let Some(step) = unready_first(inputs) {
        return Some(step);
    }
    // Pods that are not ready may exhaust the budget themselves, and the sidecar may be the cause.
    let all_ready = inputs.availability.is_none_or(|it| it.unready.is_empty());
    let budget = inputs.limits.blocking_pdb.as_deref();
    let budget = budget.filter(|_| all_ready);
    if let Some(blocker) = RolloutBlocker::exceeds_budget(inputs.objects, budget) {
        return Some(UnbindStep::Blocked(blocker.to_string()));
    }
    inputs.await_slot()
}

fn next_step(inputs: &UnbindInputs<'_>) -> UnbindStep {
    if inputs.skip {
        return UnbindStep::Done;
    }
    if let Some(unresolved) = inputs.unresolved {
        return with_unresolved_target(inputs, unresolved);
    }
    if inputs.pods.is_empty() && !inputs.has_terminating {
        return without_pods(inputs);
    }
    if let Some(paused) = inputs.objects.iter().find(|it| it.paused) {
        return UnbindStep::Blocked(format!(
            "{}: spec.paused is true, so its pods keep the sidecar; resume the rollout, or annotate the actor with \
             asya.sh/skip-unbind: \"true\"",
            paused.object
        ));
    }
    if inputs.must_give_up_fields() {
        if !inputs.only_new_values_roll() {
            return UnbindStep::GiveUp;
        }
        if !inputs.has_unbind_marker() {
            return UnbindStep::ChangeValue;
        }
    }
    if inputs.owner_may_be_starting() || inputs.has_terminating {
        return UnbindStep::InProgress;
    }
    if inputs.has_template_fields() {
        return UnbindStep::GiveUp;
    }
    if let Some(text) = describe_foreign_sidecar(inputs) {
        return UnbindStep::Blocked(text);
    }
    match inputs.availability {
        None => without_target(inputs),
        Some(availability) if availability.has_terminating => UnbindStep::InProgress,
        Some(availability) => one_by_one(inputs, availability),
    }
}

/// Without a target, only what is left on its pods and objects tells whether anything has to be removed.
fn with_unresolved_target(
    inputs: &UnbindInputs<'_>,
    unresolved: UnresolvedTarget<'_>,
) -> UnbindStep {
    let annotated = inputs.objects.iter().any(|it| it.roll_value.is_some());
    if annotated && inputs.since_last_action.is_none() {
        return UnbindStep::GiveUp;
    }
    let has_no_pod = inputs.pods.is_empty() && inputs.unmanaged_pod.is_none();
    match (has_no_pod, inputs.has_terminating) {
        (true, false) if !unresolved.may_have_fields => UnbindStep::Done,
        (true, true) => UnbindStep::InProgress,
        _ => UnbindStep::Blocked(unresolved.reason.to_owned()),
    }
}

/// No pod of the target has the sidecar. Giving up our fields may still replace its pods.
fn without_pods(inputs: &UnbindInputs<'_>) -> UnbindStep {
    if inputs.must_give_up_fields() {
        return UnbindStep::GiveUp;
    }
    if inputs.is_rolling_for_us() {
        return UnbindStep::InProgress;
    }
    // A pod started before the owner has updated its template would be replaced at once.
    if inputs.scaled_to_zero && inputs.owner_may_be_starting() {
        return UnbindStep::InProgress;
    }
    inputs
        .unmanaged_pod
        .map_or(UnbindStep::Done, without_controller)
}

/// The next pod to evict among those that were injected after their actor was gone: nothing of ours is left whose
/// removal would replace them.
pub fn leftover_eviction(
    unbinding: &ObservedUnbinding,
    actor: &str,
    last_eviction: Option<Timestamp>,
    now: Timestamp,
) -> Option<PodToReplace> {
    let is_recent =
        |last: Timestamp| now.duration_since(last).unsigned_abs() < LATE_EVICTION_INTERVAL;
    if last_eviction.is_some_and(is_recent) {
        return None;
    }
    let step = decide(&UnbindInputs {
        actor,
        skip: false,
        pods: &unbinding.pods,
        unmanaged_pod: None,
        has_terminating: unbinding.has_terminating,
        scaled_to_zero: false,
        availability: unbinding.availability.as_ref(),
        previous_pods: None,
        since: last_eviction,
        limit: None,
        now,
        method: None,
        objects: &unbinding.objects,
        unresolved: None,
        since_last_action: Some(Duration::MAX),
        limits: UnbindLimits {
            has_slot: true,
            ..UnbindLimits::default()
        },
    });
    match step {
        UnbindStep::Evict(pod) => Some(pod),
        _ => None,
    }
}

/// Why evictions would not help: our fields are given up, but the pod template still has the sidecar, like a template
/// that was exported to Git.
fn describe_foreign_sidecar(inputs: &UnbindInputs<'_>) -> Option<String> {
    let mut objects = inputs.objects.iter();
    let object = objects.find(|it| it.sidecar_of(inputs.actor).is_some())?;
    Some(format!(
        "{}: another field manager keeps the sidecar in its pod template, so new pods would get it again; remove the \
         containers, volumes, labels and annotations of Asya from its manifest",
        object.object
    ))
}

/// Pods of a target that no longer exists usually go with it. Those that stay are not evicted: nothing says whether a
/// controller would replace them, nor how many may be missing.
fn without_target(inputs: &UnbindInputs<'_>) -> UnbindStep {
    let waited = inputs.since.map(|since| inputs.now.duration_since(since));
    let waited = waited.and_then(|it| Duration::try_from(it).ok());
    match inputs.pods.first() {
        Some(pod) if waited.is_none_or(|it| it > GARBAGE_COLLECTION_LIMIT) => {
            let text = format!(
                "the target does not exist any more, and pod {} still has the sidecar; replace or remove the pod as \
                 its owner",
                pod.name
            );
            UnbindStep::Blocked(text)
        }
        _ => UnbindStep::InProgress,
    }
}

/// A pod that no controller would replace is not evicted: a user keeps it, for example to debug it.
fn without_controller(pod: &str) -> UnbindStep {
    let text = format!(
        "pod {pod} still has the sidecar, and no controller would replace it; delete it, or annotate the actor with \
         asya.sh/skip-unbind: \"true\""
    );
    UnbindStep::Blocked(text)
}

#[cfg(test)]
mod tests;
