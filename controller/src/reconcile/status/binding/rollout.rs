//! The rollout of a target's pods in the status.

use std::time::Duration;

use asya_shared::api::RolloutStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::clock_skew::to_the_second;
use crate::fault::Requeue;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{BindingOutcome, ReplacementMethod, RolloutOutcome};
use crate::reconcile::model::rollout::{UNBIND_MARKER, consecutive_uninjected, newest};
use crate::reconcile::model::target_pods::actor_hash;

/// Requeue interval for a replacement that is not ready.
const STALLED_RECHECK: Duration = Duration::from_secs(30);
/// Requeue interval for a replacement that was just requested.
const REQUESTED_RECHECK: Duration = Duration::from_secs(2);

/// When to requeue for pods that are being replaced.
pub(super) fn rollout_retry(outcome: &RolloutOutcome) -> Option<Requeue> {
    match outcome {
        RolloutOutcome::Waiting(fault) => Some(fault.requeue),
        RolloutOutcome::Requested(_) => Some(Requeue::After(REQUESTED_RECHECK)),
        // Readiness of pods that have no sidecar yet is not watched.
        RolloutOutcome::Stalled(_) => Some(Requeue::After(STALLED_RECHECK)),
        // The next reconcile knows the backoff.
        RolloutOutcome::Conflict(_) => Some(Requeue::Now),
        RolloutOutcome::NotChecked
        | RolloutOutcome::NotNeeded
        | RolloutOutcome::NoPodsYet
        | RolloutOutcome::Yielded
        | RolloutOutcome::Halted(_) => None,
    }
}

/// The rollout state that the next reconcile needs, also after a restart (ROLL-5).
pub(super) fn rollout_status(
    observed: &Observed,
    outcome: &BindingOutcome,
    now: Timestamp,
) -> Option<RolloutStatus> {
    // An actor that got messages while it was unbound is active again, and may write again what it gave up.
    let previous = observed.previous.rollout.clone();
    let previous = previous.filter(|previous| previous.value != UNBIND_MARKER);
    match &outcome.rollout {
        RolloutOutcome::NotChecked => previous,
        RolloutOutcome::Waiting(_) => previous.map(|previous| RolloutStatus {
            stalled: false,
            ..previous
        }),
        RolloutOutcome::Stalled(_) => previous.map(|previous| RolloutStatus {
            stalled: true,
            ..previous
        }),
        // A reverted annotation does not count as an attempt without effect (ROLL-5).
        RolloutOutcome::NotNeeded
        | RolloutOutcome::NoPodsYet
        | RolloutOutcome::Yielded
        | RolloutOutcome::Conflict(_) => None,
        RolloutOutcome::Halted(_) => Some(RolloutStatus {
            value: roll_value(observed)?,
            halted: true,
            generation: observed.actor.generation,
            workload_specs_hash: workload_specs_hash(observed),
            ..previous.unwrap_or_default()
        }),
        RolloutOutcome::Requested(method) => after_request(observed, *method, previous, now),
    }
}

/// The state after this reconcile has requested a replacement.
fn after_request(
    observed: &Observed,
    method: ReplacementMethod,
    previous: Option<RolloutStatus>,
    now: Timestamp,
) -> Option<RolloutStatus> {
    let value = roll_value(observed)?;
    let previous = previous.filter(|previous| previous.value == value);
    let tries = previous.as_ref().map_or(0, |it| it.tries);
    // An eviction does not count as an attempt by annotation, which may still follow (SAFE-13).
    let annotated = i32::from(method == ReplacementMethod::Annotation);
    let evicted = previous.filter(|_| method == ReplacementMethod::Eviction);
    let counts = observed.rollout().map(|rollout| &rollout.pod_counts);
    let roll_now = observed.actor.annotations.roll_now;
    let outdated = counts.map(|counts| counts.replaceable(roll_now));
    let replaced = outdated.zip(evicted);
    Some(RolloutStatus {
        value,
        since: Some(Time(to_the_second(now))),
        newest_pod: outdated.and_then(newest),
        tries: tries.saturating_add(annotated),
        pods: counts.map(|counts| counts.pods.matched),
        uninjected_replacements: replaced
            .map_or(0, |(outdated, it)| consecutive_uninjected(outdated, &it)),
        halted: false,
        stalled: false,
        generation: observed.actor.generation,
        workload_specs_hash: workload_specs_hash(observed),
    })
}

/// The hash that pods should carry after the rollout.
fn roll_value(observed: &Observed) -> Option<String> {
    let hash = observed.desired_binding()?.injected_hash.as_deref();
    let roll_now = observed.actor.annotations.roll_now;
    if roll_now { hash } else { actor_hash(hash) }.map(str::to_owned)
}

fn workload_specs_hash(observed: &Observed) -> String {
    let rollout = observed.rollout();
    let hash = rollout.map(|rollout| rollout.workload_specs_hash.clone());
    hash.unwrap_or_default()
}
