//! Builds the status of a binding (BIND-5 to BIND-8).

mod annotated;
mod conditions;
mod conflicts;
mod state;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{
    AsyncActorStatus, BindingStrategy, InjectionStatus, Mode, ObjectReference, ResolvedTarget,
    RolloutStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use state::BindingStateInputs;

use super::common::{Report, messages, ready_generation, summarize_conditions, unready_limit};
use super::{inventory, queue, scaling, transport};
use crate::fault::{Fault, Reason, Requeue};
use crate::pods::summary::Pods;
use crate::reconcile::injection::InjectionInputs;
use crate::reconcile::model::binding::{ObservedBinding, Resolved};
use crate::reconcile::model::bound_pods::{BoundPods, TargetPodCounts, actor_hash};
use crate::reconcile::model::condition_types::{INJECTED, TARGET_RESOLVED};
use crate::reconcile::model::condition_types::{SCALING_READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{ActiveOutcome, ReplacementMethod, RolloutOutcome};
use crate::reconcile::model::rollout::{UNBOUND, consecutive_uninjected};
use crate::reconcile::model::status_time::to_the_second;
use crate::record::PodRecord;
use crate::scaling::replicas::{LastScale, last_scale};

/// Requeue interval for a target to be scaled up, in case no watch reports that its owner has acted.
const SCALE_UP_RECHECK: Duration = Duration::from_secs(5);

/// The dry-run state that the webhook and the next reconcile read (SAFE-1).
fn injection(
    observed: &Observed,
    binding: &ObservedBinding,
    active_outcome: &ActiveOutcome,
    (counted, since): (Option<&TargetPodCounts>, Option<&Time>),
    now: Timestamp,
) -> Option<InjectionStatus> {
    let previous = observed.previous.injection.as_ref();
    let bound = observed
        .bound()
        .filter(|bound| bound.strategy == BindingStrategy::Pod);
    let Some(hash) = bound.and_then(|bound| bound.injected_hash.as_deref()) else {
        return previous.cloned();
    };
    let inputs = InjectionInputs {
        previous,
        hash,
        generation: observed.actor.generation,
        limits: binding.limits.as_ref(),
        injected: counted.is_some_and(|it| it.current > 0),
        admitted: counted.is_some_and(|it| it.admitted > 0),
    };
    let binds = since.is_some() && observed.previous.bound_since.is_none();
    inputs.status_after(&active_outcome.probe.outcome, binds, now)
}

/// Builds the status of an active binding.
pub(super) fn report(
    observed: &Observed,
    binding: &ObservedBinding,
    active_outcome: &ActiveOutcome,
    now: Timestamp,
) -> Report {
    let bound_since = bound_since(observed, binding, active_outcome, now);
    let pods = pods(observed, binding, bound_since.as_ref(), now);
    let counted = pods.counted.as_ref();
    let injection = injection(
        observed,
        binding,
        active_outcome,
        (counted, bound_since.as_ref()),
        now,
    );
    let known = (counted, injection.as_ref());
    let injected = conditions::injected(
        observed,
        binding,
        active_outcome,
        known,
        bound_since.is_some(),
    );
    let hpa = scaling::hpa(observed, active_outcome);
    let scaling = scaling::scaling_condition(observed, active_outcome, hpa, (&pods.scale, now));
    let faults = faults(observed, binding, active_outcome);
    let decision = state::decide(&BindingStateInputs {
        spec_fault: faults.refused,
        transport_fault: transport::unusable_reason(observed, active_outcome, faults.transport),
        target_fault: faults.target,
        pods: pods.health(),
        injected: injected.as_ref(),
        scaling: scaling.as_ref(),
        desired: pods.desired_by_target,
        previous: &observed.previous,
        generation: observed.actor.generation,
        unready_limit: unready_limit(observed),
        progress_limit: observed.progress_limit(),
        now,
    });
    let mut status = status(observed, binding, pods);
    set_scaling_fields(&mut status, observed, active_outcome);
    status.inventory = inventory::inventory(observed, active_outcome);
    (status.queued_messages, status.processing_messages) = messages(observed, active_outcome);
    // The webhook and the next reconcile read it from the status.
    let newly_bound = bound_since.is_some() && observed.previous.bound_since.is_none();
    // The next dry run, the rollout and the scaling wait for these.
    let status_inputs =
        |it: Option<&InjectionStatus>| it.map(|it| (it.limits.clone(), it.proved.clone()));
    let inputs_changed =
        status_inputs(injection.as_ref()) != status_inputs(observed.previous.injection.as_ref());
    status.bound_since = bound_since;
    status.injection = injection;
    status.rollout = rollout(observed, active_outcome, now);
    status.roll_annotations = annotated::annotated(observed, active_outcome);
    conflicts::set_conflicts(&mut status, observed, active_outcome, now);
    status.progressing_since = decision.progressing_since.map(Time);
    let queues = queue::set_queues(observed, active_outcome, &mut status);
    let recheck = decision
        .recheck_at
        .and_then(|at| at.duration_since(now).try_into().ok());
    let scaling_requeues =
        scaling::requeues(observed, active_outcome, scaling.as_ref(), &status, now);
    let retry = faults
        .retries()
        .chain(recheck.map(Requeue::After))
        .chain(scaling_requeues)
        .chain(active_outcome.queue.retry())
        .chain(rollout_requeue(&active_outcome.rollout))
        .chain(conflicts::requeues(active_outcome))
        .chain((newly_bound || inputs_changed).then_some(Requeue::Now))
        .chain(active_outcome.probe.next_probe_in.map(Requeue::After))
        .chain(
            active_outcome
                .awaits_scale_up
                .then_some(Requeue::After(SCALE_UP_RECHECK)),
        )
        .chain(queues.retry)
        .fold(Requeue::AwaitChange, Requeue::sooner);
    status.status = Some(decision.state);
    status.conditions = conditions::build(
        observed,
        binding,
        active_outcome,
        (
            faults.transport,
            faults.refused,
            decision
                .exceeded_limit
                .map(|limit| conditions::progress_message(&status, limit)),
        ),
        (injected, scaling),
        conflicts::message(observed, &status.conflicts),
        now,
    );
    status.ready_generation = ready_generation(observed, &status);
    summarize(&mut status);
    let mut events = queues.events;
    events.extend(conflicts::conflict_events(observed, &status.conflicts));
    events.extend(conditions::unenforced_event(observed, binding));
    Report {
        status,
        retry,
        events,
    }
}

/// What keeps a binding from its desired state.
struct Faults<'a> {
    transport: Option<&'a Fault>,
    /// An invalid spec, or a failed write.
    refused: Option<&'a Fault>,
    target: Option<&'a Fault>,
    /// All faults that may cause a retry.
    all: [Option<&'a Fault>; 4],
}

impl Faults<'_> {
    fn retries(&self) -> impl Iterator<Item = Requeue> {
        self.all.into_iter().flatten().map(|fault| fault.retry)
    }
}

fn faults<'a>(
    observed: &'a Observed,
    binding: &'a ObservedBinding,
    active_outcome: &'a ActiveOutcome,
) -> Faults<'a> {
    let (transport, spec) = transport::faults(observed, active_outcome);
    let target = binding.target.as_ref().and_then(|it| it.as_ref().err());
    let write_fault = active_outcome.fault.as_ref();
    Faults {
        transport,
        refused: spec.or(write_fault),
        target,
        all: [transport, spec, write_fault, target],
    }
}

/// The pods of a target, as far as they have been listed.
struct ObservedPods {
    counted: Option<TargetPodCounts>,
    health: Option<Pods>,
    /// Replicas that the target specifies, if known.
    desired_by_target: Option<i32>,
    desired: Option<i32>,
    scale: LastScale,
}

impl ObservedPods {
    fn health(&self) -> Option<(&TargetPodCounts, &Pods)> {
        self.counted.as_ref().zip(self.health.as_ref())
    }
}

fn pods(
    observed: &Observed,
    binding: &ObservedBinding,
    since: Option<&Time>,
    now: Timestamp,
) -> ObservedPods {
    let counted = counted(observed, binding, since);
    let health = binding.pods.as_ref();
    let target_replicas = resolved(binding).and_then(|resolved| resolved.replicas);
    let desired = counted
        .as_ref()
        .map(|counted| target_replicas.unwrap_or(counted.total));
    ObservedPods {
        health: health.map(|pods| Pods::count(&injected_pods(observed, pods), None, now)),
        scale: last_scale(&observed.previous, desired, now),
        counted,
        desired_by_target: target_replicas,
        desired,
    }
}

/// Pods with this actor's sidecar; failures in another actor's sidecar are not its fault.
fn injected_pods(observed: &Observed, pods: &BoundPods) -> Vec<Arc<PodRecord>> {
    let uid = &observed.actor.metadata.uid;
    let is_own = |pod: &&Arc<PodRecord>| pod.injection.as_ref().is_some_and(|it| it.by == *uid);
    pods.labelled.iter().filter(is_own).cloned().collect()
}

fn set_scaling_fields(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    active_outcome: &ActiveOutcome,
) {
    scaling::set_fields(status, observed, active_outcome);
    if observed.scaling.scaled_object.ours().is_some() || active_outcome.awaits_scale_up {
        // Keep the reference until the target has pods: it may have to be scaled up once the `ScaledObject` is deleted
        // (SO-6).
        let reference = &mut status.scaled_object_ref;
        *reference = reference
            .take()
            .or(observed.previous.scaled_object_ref.clone());
    }
}

/// BIND-6
fn summarize(status: &mut AsyncActorStatus) {
    let scales = status.conditions.iter().any(|c| c.type_ == SCALING_READY);
    let all = [TRANSPORT_READY, TARGET_RESOLVED, INJECTED, SCALING_READY];
    summarize_conditions(status, if scales { &all } else { &all[..3] });
}

fn resolved(binding: &ObservedBinding) -> Option<&Resolved> {
    binding.target.as_ref()?.as_deref().ok()
}

/// Since when the binding is effective: set once, cleared when the binding is refused, and kept while the target is
/// unknown (BIND-3).
fn bound_since(
    observed: &Observed,
    binding: &ObservedBinding,
    active_outcome: &ActiveOutcome,
    now: Timestamp,
) -> Option<Time> {
    let previous = observed.previous.bound_since.clone();
    let refused = match &binding.target {
        Some(Err(fault)) => matches!(
            fault.reason,
            Reason::AlreadyBound
                | Reason::CrossNamespace
                | Reason::NamespaceExcluded
                | Reason::UnsupportedTarget
        ),
        Some(Ok(_)) | None => false,
    };
    let can_bind = active_outcome.bindable && binding.target.is_some();
    // Second precision, like the creation time of pods.
    let now = to_the_second(now);
    match previous {
        _ if refused => None,
        Some(since) => Some(since),
        None => can_bind.then_some(Time(now)),
    }
}

fn counted(
    observed: &Observed,
    binding: &ObservedBinding,
    since: Option<&Time>,
) -> Option<TargetPodCounts> {
    let hash = observed.bound()?.injected_hash.as_deref();
    let uid = &*observed.actor.metadata.uid;
    Some(TargetPodCounts::of(
        binding.pods.as_ref()?,
        uid,
        hash,
        since,
    ))
}

/// The status except STATUS, conditions and queues.
fn status(observed: &Observed, binding: &ObservedBinding, pods: ObservedPods) -> AsyncActorStatus {
    let previous = &observed.previous;
    let (desired, known) = (pods.desired, pods.health());
    let mut status = AsyncActorStatus {
        mode: Some(Mode::Binding),
        observed_generation: Some(observed.actor.generation),
        resolved_target: resolved_target(observed, binding),
        pods: known.map_or_else(|| previous.pods.clone(), |it| Some(it.0.pods.clone())),
        ..AsyncActorStatus::default()
    };
    let (Some((counted, health)), Some(desired)) = (known, desired) else {
        // The pods have not been listed since this process started: keep the previous values until then.
        return AsyncActorStatus {
            replicas: previous.replicas,
            ready_replicas: previous.ready_replicas,
            desired_replicas: previous.desired_replicas,
            total_replicas: previous.total_replicas,
            pending_replicas: previous.pending_replicas,
            failing_pods: previous.failing_pods,
            replicas_summary: previous.replicas_summary.clone(),
            ready_replicas_summary: previous.ready_replicas_summary.clone(),
            last_scale_time: previous.last_scale_time.clone(),
            last_scale_direction: previous.last_scale_direction.clone(),
            last_scale_formatted: previous.last_scale_formatted.clone(),
            selector: previous.selector.clone(),
            workload_ref: previous.workload_ref.clone(),
            ..status
        };
    };
    let (ready, total) = (counted.ready, counted.total);
    status.replicas = Some(ready);
    status.ready_replicas = Some(ready);
    status.desired_replicas = Some(desired);
    status.total_replicas = Some(total);
    status.pending_replicas = Some(health.pending);
    status.failing_pods = Some(health.failing);
    status.replicas_summary = Some(format!("{ready}/{desired}"));
    status.ready_replicas_summary = Some(format!("{ready}/{total}"));
    status.last_scale_time = pods.scale.time;
    status.last_scale_direction = pods.scale.direction;
    status.last_scale_formatted = Some(pods.scale.formatted);
    if let Some(target) = &status.resolved_target {
        status.selector.clone_from(&target.pod_selector);
        status.workload_ref = Some(ObjectReference {
            api_version: Some(target.api_version.clone()),
            kind: target.kind.clone(),
            name: target.name.clone(),
            namespace: target.namespace.clone(),
        });
    }
    status
}

/// Dropped once the target is lost, because a new target with its name may have other labels (BIND-41).
fn resolved_target(observed: &Observed, binding: &ObservedBinding) -> Option<ResolvedTarget> {
    match &binding.target {
        Some(Ok(resolved)) => Some(resolved.target.to_status(&observed.key().namespace)),
        Some(Err(_)) => None,
        None => observed.previous.resolved_target.clone(),
    }
}

/// Requeue interval for a replacement that is not ready.
const STALLED_RECHECK: Duration = Duration::from_secs(30);

/// When to requeue for pods that are being replaced.
fn rollout_requeue(outcome: &RolloutOutcome) -> Option<Requeue> {
    match outcome {
        RolloutOutcome::Waiting(_, _, retry) | RolloutOutcome::Requested(_, _, retry) => {
            Some(*retry)
        }
        // Readiness of pods that have no sidecar yet is not watched.
        RolloutOutcome::Stalled(_) => Some(Requeue::After(STALLED_RECHECK)),
        // The next reconcile knows the backoff.
        RolloutOutcome::Conflict(_) => Some(Requeue::Now),
        RolloutOutcome::NotChecked
        | RolloutOutcome::NotNeeded
        | RolloutOutcome::InjectionVerified
        | RolloutOutcome::Yielded
        | RolloutOutcome::Halted(_) => None,
    }
}

/// Records when the annotation was given up or a pod evicted, which gives the controller time to react.
pub(super) fn disowned_status(observed: &Observed, now: Timestamp) -> RolloutStatus {
    let binding = observed.binding.as_ref();
    let unbinding = binding.and_then(|it| it.unbinding.as_ref());
    let now = to_the_second(now);
    RolloutStatus {
        value: UNBOUND.to_owned(),
        since: Some(Time(now)),
        pods: unbinding.map(|it| it.availability.active),
        ..RolloutStatus::default()
    }
}

/// The rollout state that the next reconcile needs, also after a restart (ROLL-5).
fn rollout(
    observed: &Observed,
    active_outcome: &ActiveOutcome,
    now: Timestamp,
) -> Option<RolloutStatus> {
    let previous = observed.previous.rollout.clone();
    let rollout = observed.rollout();
    let target = rollout
        .map(|rollout| rollout.specs_hash.clone())
        .unwrap_or_default();
    let generation = observed.actor.generation;
    let roll_value = || {
        let hash = observed.bound()?.injected_hash.as_deref();
        let roll_now = observed.actor.annotations.roll_now;
        if roll_now { hash } else { actor_hash(hash) }.map(str::to_owned)
    };
    match &*active_outcome.rollout {
        RolloutOutcome::NotChecked => previous,
        RolloutOutcome::Waiting(..) => previous.map(|it| RolloutStatus {
            stalled: false,
            ..it
        }),
        RolloutOutcome::Stalled(_) => previous.map(|it| RolloutStatus {
            stalled: true,
            ..it
        }),
        // A reverted annotation does not count as an attempt without effect (ROLL-5).
        RolloutOutcome::NotNeeded
        | RolloutOutcome::InjectionVerified
        | RolloutOutcome::Yielded
        | RolloutOutcome::Conflict(_) => None,
        RolloutOutcome::Halted(_) => Some(RolloutStatus {
            value: roll_value()?,
            halted: true,
            generation,
            target,
            ..previous.unwrap_or_default()
        }),
        RolloutOutcome::Requested(method, ..) => {
            let value = roll_value()?;
            let previous = previous.filter(|it| it.value == value);
            let tries = previous.as_ref().map_or(0, |it| it.tries);
            // An eviction does not count as an attempt by annotation, which may still follow (SAFE-13).
            let annotated = i32::from(*method == ReplacementMethod::Annotation);
            let evicted = previous.filter(|_| *method == ReplacementMethod::Eviction);
            let roll_now = observed.actor.annotations.roll_now;
            let outdated = rollout.map(|rollout| rollout.pod_counts.replaceable(roll_now));
            let replaced = outdated.zip(evicted);
            let now = to_the_second(now);
            Some(RolloutStatus {
                value,
                since: Some(Time(now)),
                tries: tries.saturating_add(annotated),
                pods: rollout.map(|rollout| rollout.pod_counts.pods.matched),
                bare: replaced.map_or(0, |(outdated, it)| consecutive_uninjected(outdated, &it)),
                halted: false,
                stalled: false,
                generation,
                target,
            })
        }
    }
}

#[cfg(test)]
mod tests;
