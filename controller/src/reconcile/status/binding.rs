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
use asya_shared::api::{AsyncActorStatus, InjectionStatus, Mode, QueueStatus};
use conditions::{ConditionInputs, binding_conditions};
use conflicts::conflict_report;
use injected::{InjectedReport, injected_report};
use injection::injection_status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pods::{CountedPods, count_pods};
use rollout::{rollout_retry, rollout_status};
use state::BindingStateInputs;
use target::set_target;

use super::common::ModeReport;
use super::scaling::{ScalingReport, ScalingStatusInputs, scaling_report};
use super::transport::TransportSummary;
use crate::clock_skew::to_the_second;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{BindingOutcome, RolloutOutcome};
use crate::reconcile::model::target_pods::TargetPods;

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
    let pods = PodsReport::new(observed, binding, outcome, now);
    let desired = pods.listed.as_ref().map(|it| it.desired);
    let queue = status.queue.as_ref();
    let scaling = target_scaling_report(observed, binding, outcome, queue, desired, now);
    scaling.fields.write_into(status);
    set_target(status, observed, binding, pods.listed.as_ref());
    let workload_fault = transport.spec_fault.or(outcome.common.fault.as_ref());
    let decision = state::decide(&BindingStateInputs {
        spec_fault: workload_fault,
        transport_fault: transport.unusable,
        target_fault: binding.target_fault(),
        pods: pods.listed.as_ref().map(|it| (&it.counts, &it.health)),
        injected: pods.injected.condition.as_ref(),
        scaling: scaling.ready.as_ref(),
        desired: replicas_of_target(binding),
        previous: &observed.previous,
        generation: observed.actor.generation,
        unready_limit: observed.unready_limit(),
        progress_limit: observed.progress_limit(),
        now,
    });
    status.progressing_since = decision.progressing_since.map(Time);
    status.rollout = rollout_status(observed, outcome, now);
    status.roll_annotations = annotated(observed, outcome);
    let conflicts = conflict_report(observed, outcome, now);
    conflicts.fields.write_into(status);
    let requeue = requeues(observed, binding, outcome, &pods)
        .chain(conflicts.requeues)
        .fold(scaling.requeue, Requeue::sooner);
    status.bound_since = pods.since;
    status.injection = pods.injection;
    let inputs = ConditionInputs {
        injected: pods.injected.condition,
        scaling: scaling.ready,
        workload_fault,
        failure: decision.failure,
        exceeded_limit: decision.exceeded_limit,
        conflict: conflicts.message,
    };
    let events = conflicts.events.into_iter().chain(pods.injected.event);
    ModeReport {
        state: decision.state,
        conditions: binding_conditions(observed, binding, inputs, status),
        requeue,
        recheck_at: decision.recheck_at,
        events: events.collect(),
    }
}

/// The target's pods, and whether they get the sidecar.
struct PodsReport {
    /// Since when the binding is in effect.
    since: Option<Time>,
    /// `None` until the pods have been listed.
    listed: Option<CountedPods>,
    injection: Option<InjectionStatus>,
    injected: InjectedReport,
}

impl PodsReport {
    fn new(
        observed: &Observed,
        binding: &ObservedBinding,
        outcome: &BindingOutcome,
        now: Timestamp,
    ) -> Self {
        let since = bound_since(observed, binding, outcome, now);
        let desired = replicas_of_target(binding);
        let listed = count_pods(observed, binding, since.as_ref(), desired, now);
        let counts = listed.as_ref().map(|it| &it.counts);
        let injection = injection_status(observed, binding, outcome, counts, since.as_ref(), now);
        let probed = injection.as_ref();
        let injected = injected_report(observed, binding, outcome, counts, probed, since.is_some());
        Self {
            since,
            listed,
            injection,
            injected,
        }
    }

    /// Whether the result of this reconcile lets the next one take a step.
    fn requires_another_reconcile(&self, observed: &Observed) -> bool {
        let previous = &observed.previous;
        // The webhook and the next reconcile read it from the status.
        let newly_bound = self.since.is_some() && previous.bound_since.is_none();
        // The next dry run, the rollout and the scaling wait for these.
        let inputs = |injection: Option<&InjectionStatus>| {
            injection.map(|it| (it.limits.clone(), it.verified_actor_hash.clone()))
        };
        newly_bound || inputs(self.injection.as_ref()) != inputs(previous.injection.as_ref())
    }
}

fn replicas_of_target(binding: &ObservedBinding) -> Option<i32> {
    binding.resolved()?.target.replicas
}

/// Reports scaling, with the evidence that the queue has scaled the target.
fn target_scaling_report<'a>(
    observed: &'a Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    queue: Option<&QueueStatus>,
    desired: Option<i32>,
    now: Timestamp,
) -> ScalingReport<'a> {
    let inputs = ScalingStatusInputs {
        outcome: &outcome.common,
        queue,
        other_autoscaler: None,
        stopped: false,
        pods_verified: outcome.rollout == RolloutOutcome::NoPodsYet,
    };
    let mut scaling = scaling_report(observed, inputs, |_| desired, now);
    let target = binding.resolved().map(|it| &it.target);
    let may_be_at_zero = target.is_none_or(|target| target.replicas == Some(0));
    if observed.scaling.scaled_object.ours().is_some()
        || outcome.awaits_scale_up
        || may_be_at_zero
        || may_get_to_zero(observed).is_some()
    {
        // Keep the reference until the target has pods: it may have to be scaled up once nothing scales it any more
        // (SO-6), even if KEDA has been removed since.
        let settings = &mut scaling.fields.settings;
        let reference = settings.scaled_object_ref.take();
        settings.scaled_object_ref = reference.or(scaling.remembered_reference.take());
    }
    scaling
}

/// When to requeue, apart from scaling and conflicts.
fn requeues(
    observed: &Observed,
    binding: &ObservedBinding,
    outcome: &BindingOutcome,
    pods: &PodsReport,
) -> impl Iterator<Item = Requeue> + use<> {
    let rechecks = [
        outcome.probe.next_probe_in,
        outcome.awaits_scale_up.then_some(SCALE_UP_RECHECK),
        may_get_to_zero(observed),
    ];
    let target_fault = binding.target_fault().map(|fault| fault.requeue);
    target_fault
        .into_iter()
        .chain(rollout_retry(&outcome.rollout))
        .chain(
            pods.requires_another_reconcile(observed)
                .then_some(Requeue::Now),
        )
        .chain(rechecks.into_iter().flatten().map(Requeue::After))
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
