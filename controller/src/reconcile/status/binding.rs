//! Reports a binding (BIND-5 to BIND-8).

mod annotated;
mod conditions;
mod conflicts;
mod injected;
mod injection;
mod pods;
mod rollout;
mod state;
mod target;

use std::time::Duration;

use annotated::annotated;
use asya_shared::api::{AsyncActorStatus, InjectionStatus, Mode};
use conditions::{ConditionInputs, binding_conditions};
use conflicts::set_binding_conflicts;
use injected::injected_report;
use injection::injection_status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pods::count_pods;
use rollout::{rollout_retry, rollout_status};
use state::BindingStateInputs;
use target::set_target;

use super::common::ModeReport;
use super::scaling::{ScalingInputs, set_scaling};
use super::transport::TransportSummary;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{BindingOutcome, RolloutOutcome};
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::status_time::to_the_second;

/// Requeue interval for a target to be scaled up, in case no watch reports that its owner has acted.
const SCALE_UP_RECHECK: Duration = Duration::from_secs(5);

/// How long a write of KEDA may take to reach the target and our watch of it.
const KEDA_LAST_WRITE: Duration = Duration::from_secs(30);

pub(super) fn binding_report(
    status: &mut AsyncActorStatus,
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    transport: &TransportSummary<'_>,
    now: Timestamp,
) -> ModeReport {
    status.mode = Some(Mode::Binding);
    let previous = &observed.previous;
    let target = binding.resolved().map(|it| &it.target);
    let target_fault = binding.target_fault();
    let workload_fault = transport.spec_fault.or(outcome.common.fault.as_ref());
    let desired_by_target = target.and_then(|target| target.replicas);
    let since = bound_since(observed, binding, outcome, now);
    let may_get_to_zero = may_get_to_zero(observed);
    let pods = count_pods(observed, binding, since.as_ref(), desired_by_target, now);
    let counts = pods.as_ref().map(|it| &it.counts);
    let injection = injection_status(observed, binding, outcome, counts, since.as_ref(), now);
    let (is_bound, probed) = (since.is_some(), injection.as_ref());
    let injected = injected_report(observed, binding, outcome, counts, probed, is_bound);
    let desired = pods.as_ref().map(|it| it.desired);
    let scaling_inputs = ScalingInputs {
        outcome: &outcome.common,
        other_autoscaler: None,
        stopped: false,
        pods_verified: outcome.rollout == RolloutOutcome::NoPodsYet,
    };
    let scaling = set_scaling(status, observed, scaling_inputs, |_| desired, now);
    let may_be_at_zero = target.is_none_or(|target| target.replicas == Some(0));
    if observed.scaling.scaled_object.ours().is_some()
        || outcome.awaits_scale_up
        || may_be_at_zero
        || may_get_to_zero.is_some()
    {
        // Keep the reference until the target has pods: it may have to be scaled up once nothing scales it any more
        // (SO-6), also if KEDA has been removed since.
        let reference = status.scaled_object_ref.take();
        status.scaled_object_ref = reference.or(scaling.remembered_reference);
    }
    set_target(status, observed, binding, pods.as_ref());
    let decision = state::decide(&BindingStateInputs {
        spec_fault: workload_fault,
        transport_fault: transport.unusable,
        target_fault,
        pods: pods.as_ref().map(|pods| (&pods.counts, &pods.health)),
        injected: injected.condition.as_ref(),
        scaling: scaling.ready.as_ref(),
        desired: desired_by_target,
        previous,
        generation: observed.actor.generation,
        unready_limit: observed.unready_limit(),
        progress_limit: observed.progress_limit(),
        now,
    });
    status.progressing_since = decision.progressing_since.map(Time);
    status.rollout = rollout_status(observed, outcome, now);
    status.roll_annotations = annotated(observed, outcome);
    let conflicts = set_binding_conflicts(status, observed, outcome, now);
    // The webhook and the next reconcile read it from the status.
    let newly_bound = since.is_some() && previous.bound_since.is_none();
    // The next dry run, the rollout and the scaling wait for these.
    let status_inputs = |injection: Option<&InjectionStatus>| {
        injection.map(|injection| {
            (
                injection.limits.clone(),
                injection.verified_actor_hash.clone(),
            )
        })
    };
    let inputs_changed =
        status_inputs(injection.as_ref()) != status_inputs(previous.injection.as_ref());
    status.bound_since = since;
    status.injection = injection;
    let rechecks = [
        outcome.probe.next_probe_in,
        outcome.awaits_scale_up.then_some(SCALE_UP_RECHECK),
        may_get_to_zero,
    ];
    ModeReport {
        state: decision.state,
        conditions: binding_conditions(
            observed,
            binding,
            ConditionInputs {
                injected: injected.condition,
                scaling: scaling.ready,
                workload_fault,
                failure: decision.failure,
                exceeded_limit: decision.exceeded_limit,
                conflict: conflicts.message,
            },
            status,
        ),
        requeue: (target_fault.into_iter().map(|fault| fault.requeue))
            .chain(rollout_retry(&outcome.rollout))
            .chain(conflicts.requeues)
            .chain((newly_bound || inputs_changed).then_some(Requeue::Now))
            .chain(rechecks.into_iter().flatten().map(Requeue::After))
            .fold(scaling.requeue, Requeue::sooner),
        recheck_at: decision.recheck_at,
        events: (conflicts.events.into_iter())
            .chain(injected.event)
            .collect(),
    }
}

/// How long KEDA, which has just been removed, may still scale the target to zero by a last write that we have not
/// observed (SO-6).
fn may_get_to_zero(observed: &Observed) -> Option<Duration> {
    let scaling = observed.desired.as_ref().ok()?.spec.effective_scaling();
    let lost_for = scaling.and(observed.scaling.lost_for)?;
    KEDA_LAST_WRITE
        .checked_sub(lost_for)
        .filter(|left| !left.is_zero())
}

/// Since when the binding is effective: set once, cleared when the binding is refused, and kept while the target is
/// unknown (BIND-3).
fn bound_since(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    now: Timestamp,
) -> Option<Time> {
    let previous = observed.previous.bound_since.clone();
    let refused = binding.target_fault().is_some_and(|fault| {
        matches!(
            fault.reason,
            Reason::AlreadyBound
                | Reason::CrossNamespace
                | Reason::NamespaceExcluded
                | Reason::UnsupportedTarget
        )
    });
    let can_bind = outcome.can_bind && binding.injection().is_some();
    // Second precision, like the creation time of pods. If our clock is behind the API server's, pods that exist
    // already must not count as created after the binding.
    let pods = binding.pods().and_then(TargetPods::newest);
    let seen = pods.max(observed.actor.created.clone());
    let now = Some(Time(to_the_second(now))).max(seen);
    match previous {
        _ if refused => None,
        Some(since) => Some(since),
        None => now.filter(|_| can_bind),
    }
}

#[cfg(test)]
mod tests;
