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
use state::BindingStateFacts;

use super::parts::{
    Report, messages, progress_limit, ready_generation, summarize_conditions, unready_limit,
};
use super::{inventory, queue, scaling, transport};
use crate::fault::{Fault, Reason, Requeue};
use crate::pods::summary::Pods;
use crate::reconcile::injection::Known;
use crate::reconcile::model::binding::{BindingSeen, Resolved};
use crate::reconcile::model::bound_pods::{BoundPods, Counted, actor_part};
use crate::reconcile::model::condition_types::{INJECTED, TARGET_RESOLVED};
use crate::reconcile::model::condition_types::{SCALING_READY, TRANSPORT_READY};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{By, Ensured, Rolled};
use crate::reconcile::plan::roll::bare_in_a_row;
use crate::reconcile::plan::unbind::UNBOUND;
use crate::record::PodRecord;
use crate::scaling::replicas::{LastScale, last_scale};

/// Requeue interval for a target to be scaled up, in case no watch reports that its owner has done its part.
const ASLEEP: Duration = Duration::from_secs(5);

/// The dry-run state that the webhook and the next reconcile read (SAFE-1).
fn injection(
    observed: &Observed,
    seen: &BindingSeen,
    ensured: &Ensured,
    (counted, since): (Option<&Counted>, Option<&Time>),
    now: Timestamp,
) -> Option<InjectionStatus> {
    let before = observed.previous.injection.as_ref();
    let bound = observed
        .bound()
        .filter(|bound| bound.strategy == BindingStrategy::Pod);
    let Some(hash) = bound.and_then(|bound| bound.injected_hash.as_deref()) else {
        return before.cloned();
    };
    let known = Known {
        before,
        hash,
        generation: observed.actor.generation,
        limits: seen.limits.as_ref(),
        injected: counted.is_some_and(|it| it.current > 0),
        admitted: counted.is_some_and(|it| it.admitted > 0),
    };
    let binds = since.is_some() && observed.previous.bound_since.is_none();
    known.after(&ensured.probe.outcome, binds, now)
}

/// Builds the status of a live binding.
pub(super) fn report(
    observed: &Observed,
    seen: &BindingSeen,
    ensured: &Ensured,
    now: Timestamp,
) -> Report {
    let bound_since = bound_since(observed, seen, ensured, now);
    let pods = pods(observed, seen, bound_since.as_ref(), now);
    let counted = pods.counted.as_ref();
    let injection = injection(
        observed,
        seen,
        ensured,
        (counted, bound_since.as_ref()),
        now,
    );
    let known = (counted, injection.as_ref());
    let injected = conditions::injected(observed, seen, ensured, known, bound_since.is_some());
    let hpa = scaling::hpa(observed, ensured);
    let scaling = scaling::judge(observed, ensured, hpa, (&pods.scale, now));
    let faults = faults(observed, seen, ensured);
    let verdict = state::decide(&BindingStateFacts {
        refused: faults.refused,
        transport: transport::wrong(observed, ensured, faults.transport),
        target: faults.target,
        pods: pods.health(),
        injected: injected.as_ref(),
        scaling: scaling.as_ref(),
        desired: pods.asked_for,
        previous: &observed.previous,
        generation: observed.actor.generation,
        unready_limit: unready_limit(observed),
        progress_limit: progress_limit(observed),
        now,
    });
    let mut status = status(observed, seen, pods);
    tell_scaling(&mut status, observed, ensured);
    status.inventory = inventory::inventory(observed, ensured);
    (status.queued_messages, status.processing_messages) = messages(observed, ensured);
    // The webhook and the next reconcile read it from the status.
    let begins = bound_since.is_some() && observed.previous.bound_since.is_none();
    // The next dry run, the rollout and the scaling wait for these.
    let told = |it: Option<&InjectionStatus>| it.map(|it| (it.limits.clone(), it.proved.clone()));
    let told_more = told(injection.as_ref()) != told(observed.previous.injection.as_ref());
    status.bound_since = bound_since;
    status.injection = injection;
    status.rollout = rollout(observed, ensured, now);
    status.roll_annotations = annotated::annotated(observed, ensured);
    conflicts::tell(&mut status, observed, ensured, now);
    status.progressing_since = verdict.progressing_since.map(Time);
    let queues = queue::tell(observed, ensured, &mut status);
    let again = verdict
        .again
        .and_then(|at| at.duration_since(now).try_into().ok());
    let of_scaling = scaling::again(observed, ensured, scaling.as_ref(), &status, now);
    let retry = faults
        .retries()
        .chain(again.map(Requeue::After))
        .chain(of_scaling)
        .chain(ensured.queue.retry())
        .chain(of_rollout(&ensured.rolled))
        .chain(conflicts::again(ensured))
        .chain((begins || told_more).then_some(Requeue::Now))
        .chain(ensured.probe.again.map(Requeue::After))
        .chain(ensured.asleep.then_some(Requeue::After(ASLEEP)))
        .chain(queues.retry)
        .fold(Requeue::AwaitChange, Requeue::sooner);
    status.status = Some(verdict.state);
    status.conditions = conditions::all(
        observed,
        seen,
        ensured,
        (
            faults.transport,
            faults.refused,
            verdict.stuck.map(|limit| conditions::stuck(&status, limit)),
        ),
        (injected, scaling),
        conflicts::message(observed, &status.conflicts),
        now,
    );
    status.ready_generation = ready_generation(observed, &status);
    summarize(&mut status);
    let mut notes = queues.notes;
    notes.extend(conflicts::notes(observed, &status.conflicts));
    notes.extend(conditions::note(observed, seen));
    Report {
        status,
        retry,
        notes,
    }
}

/// What keeps a binding from the wanted state.
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

fn faults<'a>(observed: &'a Observed, seen: &'a BindingSeen, ensured: &'a Ensured) -> Faults<'a> {
    let (transport, spec) = transport::faults(observed, ensured);
    let target = seen.target.as_ref().and_then(|it| it.as_ref().err());
    let written = ensured.fault.as_ref();
    Faults {
        transport,
        refused: spec.or(written),
        target,
        all: [transport, spec, written, target],
    }
}

/// The pods of a target, as far as they have been listed.
struct PodsSeen {
    counted: Option<Counted>,
    health: Option<Pods>,
    /// Number of pods that the target asks for, if known.
    asked_for: Option<i32>,
    desired: Option<i32>,
    scale: LastScale,
}

impl PodsSeen {
    fn health(&self) -> Option<(&Counted, &Pods)> {
        self.counted.as_ref().zip(self.health.as_ref())
    }
}

fn pods(observed: &Observed, seen: &BindingSeen, since: Option<&Time>, now: Timestamp) -> PodsSeen {
    let counted = counted(observed, seen, since);
    let health = seen.pods.as_ref();
    let asked_for = resolved(seen).and_then(|resolved| resolved.replicas);
    let desired = counted
        .as_ref()
        .map(|counted| asked_for.unwrap_or(counted.total));
    PodsSeen {
        health: health.map(|pods| Pods::count(&own(observed, pods), None, now)),
        scale: last_scale(&observed.previous, desired, now),
        counted,
        asked_for,
        desired,
    }
}

/// Pods with this actor's sidecar; failures in another actor's sidecar are not its fault.
fn own(observed: &Observed, pods: &BoundPods) -> Vec<Arc<PodRecord>> {
    let uid = &observed.actor.metadata.uid;
    let is_own = |pod: &&Arc<PodRecord>| pod.injection.as_ref().is_some_and(|it| it.by == *uid);
    pods.marked.iter().filter(is_own).cloned().collect()
}

fn tell_scaling(status: &mut AsyncActorStatus, observed: &Observed, ensured: &Ensured) {
    scaling::tell(status, observed, ensured);
    if observed.scaling.scaled_object.ours().is_some() || ensured.asleep {
        // Keep the reference until the target has pods: it may have to be scaled up once the `ScaledObject` is deleted
        // (SO-6).
        let told = &mut status.scaled_object_ref;
        *told = told.take().or(observed.previous.scaled_object_ref.clone());
    }
}

/// BIND-6
fn summarize(status: &mut AsyncActorStatus) {
    let scales = status.conditions.iter().any(|c| c.type_ == SCALING_READY);
    let all = [TRANSPORT_READY, TARGET_RESOLVED, INJECTED, SCALING_READY];
    summarize_conditions(status, if scales { &all } else { &all[..3] });
}

fn resolved(seen: &BindingSeen) -> Option<&Resolved> {
    seen.target.as_ref()?.as_deref().ok()
}

/// Since when the binding is in force: set once, cleared when the binding is refused, and kept while the target is
/// unknown (BIND-3).
fn bound_since(
    observed: &Observed,
    seen: &BindingSeen,
    ensured: &Ensured,
    now: Timestamp,
) -> Option<Time> {
    let before = observed.previous.bound_since.clone();
    let refused = match &seen.target {
        Some(Err(fault)) => matches!(
            fault.reason,
            Reason::AlreadyBound
                | Reason::CrossNamespace
                | Reason::NamespaceExcluded
                | Reason::UnsupportedTarget
        ),
        Some(Ok(_)) | None => false,
    };
    let begins = ensured.bindable && seen.target.is_some();
    // Second precision, like the creation time of pods.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match before {
        _ if refused => None,
        Some(since) => Some(since),
        None => begins.then_some(Time(now)),
    }
}

fn counted(observed: &Observed, seen: &BindingSeen, since: Option<&Time>) -> Option<Counted> {
    let hash = observed.bound()?.injected_hash.as_deref();
    let uid = &*observed.actor.metadata.uid;
    Some(Counted::of(seen.pods.as_ref()?, uid, hash, since))
}

/// The status except STATUS, conditions and queues.
fn status(observed: &Observed, seen: &BindingSeen, pods: PodsSeen) -> AsyncActorStatus {
    let previous = &observed.previous;
    let (desired, known) = (pods.desired, pods.health());
    let mut status = AsyncActorStatus {
        mode: Some(Mode::Binding),
        observed_generation: Some(observed.actor.generation),
        resolved_target: resolved_target(observed, seen),
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

/// A lost target is dropped: a new one of its name may have other labels (BIND-41).
fn resolved_target(observed: &Observed, seen: &BindingSeen) -> Option<ResolvedTarget> {
    match &seen.target {
        Some(Ok(resolved)) => Some(resolved.target.to_status(&observed.key().namespace)),
        Some(Err(_)) => None,
        None => observed.previous.resolved_target.clone(),
    }
}

/// Requeue interval for a replacement that is not ready.
const STALLED: Duration = Duration::from_secs(30);

/// When to requeue for pods that are being replaced.
fn of_rollout(rolled: &Rolled) -> Option<Requeue> {
    match rolled {
        Rolled::Waits(_, _, retry) | Rolled::Asked(_, _, retry) => Some(*retry),
        // Readiness of pods that have no sidecar yet is not watched.
        Rolled::Stalled(_) => Some(Requeue::After(STALLED)),
        // The next reconcile knows the backoff.
        Rolled::Lost(_) => Some(Requeue::Now),
        Rolled::Untouched | Rolled::Rest | Rolled::Proved | Rolled::Left | Rolled::Halted(_) => {
            None
        }
    }
}

/// Records when the annotation was given up or a pod evicted, which gives the controller time to react.
pub(super) fn released(observed: &Observed, now: Timestamp) -> RolloutStatus {
    let seen = observed.binding.as_ref();
    let seen = seen.and_then(|it| it.unbinding.as_ref());
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    RolloutStatus {
        value: UNBOUND.to_owned(),
        since: Some(Time(now)),
        pods: seen.map(|seen| seen.availability.present),
        ..RolloutStatus::default()
    }
}

/// The rollout state that the next reconcile needs, also after a restart (ROLL-5).
fn rollout(observed: &Observed, ensured: &Ensured, now: Timestamp) -> Option<RolloutStatus> {
    let before = observed.previous.rollout.clone();
    let seen = observed.rollout();
    let target = seen.map(|seen| seen.target.clone()).unwrap_or_default();
    let generation = observed.actor.generation;
    let wanted = || {
        let hash = observed.bound()?.injected_hash.as_deref();
        let at_once = observed.actor.annotations.roll_now;
        if at_once { hash } else { actor_part(hash) }.map(str::to_owned)
    };
    match &*ensured.rolled {
        Rolled::Untouched => before,
        Rolled::Waits(..) => before.map(|it| RolloutStatus {
            stalled: false,
            ..it
        }),
        Rolled::Stalled(_) => before.map(|it| RolloutStatus {
            stalled: true,
            ..it
        }),
        // An annotation that was taken back does not count as a try without effect (ROLL-5).
        Rolled::Rest | Rolled::Proved | Rolled::Left | Rolled::Lost(_) => None,
        Rolled::Halted(_) => Some(RolloutStatus {
            value: wanted()?,
            halted: true,
            generation,
            target,
            ..before.unwrap_or_default()
        }),
        Rolled::Asked(by, ..) => {
            let value = wanted()?;
            let before = before.filter(|it| it.value == value);
            let tries = before.as_ref().map_or(0, |it| it.tries);
            // An eviction does not count as a try of the annotation, which may still follow (SAFE-13).
            let annotated = i32::from(*by == By::Annotation);
            let evicted = before.filter(|_| *by == By::Eviction);
            let at_once = observed.actor.annotations.roll_now;
            let lacking = seen.map(|seen| seen.counted.replaceable(at_once));
            let bare = lacking.zip(evicted);
            let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
            Some(RolloutStatus {
                value,
                since: Some(Time(now)),
                tries: tries.saturating_add(annotated),
                pods: seen.map(|seen| seen.counted.pods.matched),
                bare: bare.map_or(0, |(lacking, it)| bare_in_a_row(lacking, &it)),
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
