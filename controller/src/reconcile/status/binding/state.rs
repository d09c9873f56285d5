//! STATUS of a binding, by the decision table of BIND-6.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, State};
use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER};
use k8s_openapi::jiff::Timestamp;

use crate::clock_skew::may_have_passed;
use crate::condition::ConditionValue;
use crate::fault::{Fault, Reason};
use crate::pods::summary::PodSummary;
use crate::reconcile::model::condition_types::{TARGET_RESOLVED, WORKLOAD_READY};
use crate::reconcile::model::target_pods::TargetPodCounts;
use crate::reconcile::status::state::{reason_of, state_of};
use crate::scaling::ready::ScalingReady;

/// Inputs of the decision table.
pub(super) struct BindingStateInputs<'a> {
    /// The spec cannot be acted on, or something that pods need cannot be created.
    pub(super) spec_fault: Option<&'a Fault>,
    /// Why the queue cannot be used.
    pub(super) transport_fault: Option<&'a str>,
    /// Why the target cannot be bound.
    pub(super) target_fault: Option<&'a Fault>,
    /// The target's pods; `None` until they have been listed.
    pub(super) pods: Option<(&'a TargetPodCounts, &'a PodSummary)>,
    /// Condition `Injected`; `None` leaves it unchanged.
    pub(super) injected: Option<&'a ConditionValue>,
    /// Condition `ScalingReady`, while the queue decides the number of pods.
    pub(super) scaling: Option<&'a ScalingReady>,
    /// Replicas that the target specifies, if known.
    pub(super) desired: Option<i32>,
    /// Status of the previous reconcile.
    pub(super) previous: &'a AsyncActorStatus,
    /// Generation of the actor's spec.
    pub(super) generation: i64,
    /// How long a pod may run without being ready; `None` means no limit.
    pub(super) unready_limit: Option<Duration>,
    /// How long a change may continue without another pod becoming ready; `None` means no limit (FW-26).
    pub(super) progress_limit: Option<Duration>,
    pub(super) now: Timestamp,
}

/// STATUS, and when it changes with time alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BindingStateDecision {
    /// `status.status`.
    pub(super) state: State,
    /// Condition `WorkloadReady` while the runtime or the sidecar of pods fails.
    pub(super) failure: Option<ConditionValue>,
    /// Since when no further pod has become ready although more are desired.
    pub(super) progressing_since: Option<Timestamp>,
    /// The progress limit that a change has exceeded (FW-26).
    pub(super) exceeded_limit: Option<Duration>,
    /// When the decision changes with time alone.
    pub(super) recheck_at: Option<Timestamp>,
}

impl From<State> for BindingStateDecision {
    fn from(state: State) -> Self {
        Self {
            state,
            failure: None,
            progressing_since: None,
            exceeded_limit: None,
            recheck_at: None,
        }
    }
}

/// Evaluates the table of BIND-6: the first matching row decides.
pub(super) fn decide(inputs: &BindingStateInputs<'_>) -> BindingStateDecision {
    if inputs.spec_fault.is_some() {
        return State::WorkloadError.into();
    }
    if inputs.transport_fault.is_some() {
        return State::TransportError.into();
    }
    if let Some(fault) = inputs.target_fault {
        return if fault.reason == Reason::TargetStopped {
            State::Napping.into()
        } else if was_bound(inputs.previous) {
            State::WorkloadError.into()
        } else {
            State::Creating.into()
        };
    }
    let Some((counted, pods)) = inputs.pods else {
        let state = inputs.previous.status.unwrap_or(State::Creating);
        return BindingStateDecision {
            progressing_since: inputs
                .previous
                .progressing_since
                .as_ref()
                .map(|since| since.0),
            ..state.into()
        };
    };
    let mut decision = target_pods_decision(inputs, counted, pods);
    let expires = pods.failure_expires.filter(|expires| *expires > inputs.now);
    decision.recheck_at = decision.recheck_at.into_iter().chain(expires).min();
    decision
}

/// Distinguishes a target that was lost from one that never existed.
fn was_bound(previous: &AsyncActorStatus) -> bool {
    let has = |kind: &str, status: &str| {
        let mut all = previous.conditions.iter();
        all.any(|c| c.type_ == kind && c.status == status)
    };
    let lost_before = previous.status == Some(State::WorkloadError)
        && has(TARGET_RESOLVED, "False")
        && !has(WORKLOAD_READY, "False");
    previous.resolved_target.is_some() || lost_before
}

/// The rows about the pods of an existing target.
fn target_pods_decision(
    inputs: &BindingStateInputs<'_>,
    counted: &TargetPodCounts,
    pods: &PodSummary,
) -> BindingStateDecision {
    let ready = counted.ready;
    let total = counted.total;
    let desired = inputs.desired.unwrap_or(total);
    if let Some(decision) = failing_pods_decision(inputs, counted, pods) {
        return decision;
    }
    if inputs.injected.is_some_and(blocks_injection) {
        return if counted.pods.injected == 0 {
            State::WorkloadError.into()
        } else {
            State::Degraded.into()
        };
    }
    if inputs
        .scaling
        .is_some_and(|scaling| scaling.condition.is_false())
    {
        return State::ScalingError.into();
    }
    let injected = inputs.injected.map(|it| it.reason);
    match () {
        () if total == 0 && desired == 0 && inputs.scaling.is_some() => State::Napping.into(),
        () if total == 0 && desired == 0 => State::Running.into(),
        // Waiting for others has no deadline.
        () if injected == Some(Reason::RolloutWaiting) => State::Updating.into(),
        () if injected == Some(Reason::RolloutInProgress) => {
            progressing(inputs, ready, State::Updating, None)
        }
        // A pod that is terminating says nothing about those that are starting.
        () if total > desired && ready >= desired => State::ScalingDown.into(),
        () if ready < desired => progressing(inputs, ready, State::ScalingUp, inputs.unready_limit),
        () => State::Running.into(),
    }
}

/// The row about pods whose runtime or sidecar fails; `None` if there are none.
fn failing_pods_decision(
    inputs: &BindingStateInputs<'_>,
    counted: &TargetPodCounts,
    pods: &PodSummary,
) -> Option<BindingStateDecision> {
    let failed = pods.failure.as_ref()?;
    let problem = &failed.problem;
    let container = problem.container.as_deref()?;
    if ![RUNTIME_CONTAINER, SIDECAR_CONTAINER].contains(&container) {
        return None;
    }
    let ready = counted.ready;
    let lacks_pods = ready < inputs.desired.unwrap_or(counted.total);
    let unready = || ConditionValue::new(false, reason_of(problem.class), failed.message());
    let state = if ready == 0 {
        state_of(problem.class)
    } else {
        State::Degraded
    };
    Some(BindingStateDecision {
        failure: lacks_pods.then(unready),
        // A pod that fails makes no progress either.
        progressing_since: clock(inputs, ready).filter(|_| lacks_pods),
        ..state.into()
    })
}

/// Whether pods will not get the sidecar until someone acts.
fn blocks_injection(injected: &ConditionValue) -> bool {
    injected.is_false()
        && matches!(
            injected.reason,
            Reason::ProbeFailed
                | Reason::ProbeRejected
                | Reason::RolloutHalted
                | Reason::StrategyNotAllowed
                | Reason::SpecConflict
                | Reason::TargetURLUnknown
        )
}

/// A change in progress, ended by `limit` or by the progress limit of FW-26. A change of the spec or of the number of
/// ready pods restarts the clock.
fn progressing(
    inputs: &BindingStateInputs<'_>,
    ready: i32,
    state: State,
    limit: Option<Duration>,
) -> BindingStateDecision {
    let since = clock(inputs, ready).unwrap_or(inputs.now);
    let ends = |limit: Option<Duration>| since.checked_add(limit?).ok();
    let is_exceeded = |limit| ends(limit).is_some_and(|ends| ends <= inputs.now);
    let stuck = inputs
        .progress_limit
        .filter(|limit| is_exceeded(Some(*limit)));
    let state = match () {
        () if stuck.is_some() && ready == 0 => State::WorkloadError,
        () if stuck.is_some() || is_exceeded(limit) => State::Degraded,
        () => state,
    };
    let next = [ends(limit), ends(inputs.progress_limit)]
        .into_iter()
        .flatten();
    BindingStateDecision {
        state,
        failure: None,
        progressing_since: Some(since),
        exceeded_limit: stuck,
        recheck_at: next.filter(|ends| *ends > inputs.now).min(),
    }
}

/// Since when the current change has made no progress, if nothing has restarted that clock.
fn clock(inputs: &BindingStateInputs<'_>, ready: i32) -> Option<Timestamp> {
    let previous = inputs.previous;
    let is_unchanged = previous.observed_generation == Some(inputs.generation)
        && previous.ready_replicas == Some(ready);
    let since = previous.progressing_since.as_ref().map(|since| since.0);
    since.filter(|since| is_unchanged && may_have_passed(*since, inputs.now))
}

#[cfg(test)]
mod tests;
