//! Computes the actor's STATUS and its condition `WorkloadReady` by the decision table STA-4 (docs/spec/standalone.md).
//! Rows are those of that table.

use std::time::Duration;

use asya_shared::api::State;
use k8s_openapi::jiff::Timestamp;

use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::{Fault, Reason};
use crate::pods::creation_failures::PodCreationFailure;
use crate::pods::summary::PodSummary;
use crate::record::{HpaRecord, ProblemClass, WorkloadRecord};
use crate::scaling::ready::ScalingReady;
use crate::scaling::replicas::desired_replicas;

/// The inputs of the decision table.
pub struct StateInputs<'a> {
    /// The actor is being deleted.
    pub deleting: bool,
    /// Why the spec cannot be acted on.
    pub spec_fault: Option<&'a Fault>,
    /// Why the queue cannot be used.
    pub transport_fault: Option<&'a str>,
    /// Why a missing workload is not created.
    pub skip_reason: Option<SkipReason>,
    /// Why the workload could not be brought to its desired state.
    pub workload_fault: Option<&'a Fault>,
    pub workload: Option<&'a WorkloadRecord>,
    /// Why pods cannot be created, if the workload's own status does not say so.
    pub creation_failure: Option<&'a PodCreationFailure>,
    pub pods: &'a PodSummary,
    /// Condition `ScalingReady`; `None` while scaling is off.
    pub scaling: Option<&'a ScalingReady>,
    /// The HPA that scales it.
    pub hpa: Option<&'a HpaRecord>,
    /// STATUS after the last reconcile.
    pub previous: Option<State>,
    /// Desired replicas after the last reconcile.
    pub previously_desired: Option<i32>,
    /// How long a pod may run without becoming ready; `None` means no limit.
    pub unready_limit: Option<Duration>,
    /// When the spec or the number of ready pods last changed.
    pub progressing_since: Timestamp,
    /// How long a change may continue without another pod becoming ready; `None` means no limit (FW-26).
    pub progress_limit: Option<Duration>,
    pub now: Timestamp,
}

/// Why children are not written (FW-21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    Paused,
    /// The actor was ready once, and `asya.sh/reconcile: Once` leaves its children alone from then on.
    ReconcileOnceDone,
}

/// STATUS and the matching condition.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDecision {
    /// `status.status`.
    pub state: State,
    /// Condition `WorkloadReady`; `None` leaves the current one unchanged.
    pub workload: Option<ConditionValue>,
    /// Whether more pods are starting, or should be.
    pub progressing: bool,
    /// When the decision changes with time alone.
    pub recheck_at: Option<Timestamp>,
}

/// Evaluates the table of STA-4: the first matching row wins. Row 1 is the deletion; row 3, a queue that is not ready,
/// replaces the STATUS of the rows below it.
pub fn decide(inputs: &StateInputs<'_>) -> StateDecision {
    if inputs.deleting {
        return StateDecision {
            state: State::Terminating,
            workload: None,
            progressing: false,
            recheck_at: None,
        };
    }
    let mut decision = match (inputs.spec_fault, inputs.workload_fault) {
        (Some(fault), _) | (None, Some(fault)) => fault_decision(fault),
        (None, None) => match inputs.workload {
            Some(workload) => workload_decision(inputs, workload),
            None => without_workload(inputs),
        },
    };
    if inputs.transport_fault.is_some() && inputs.spec_fault.is_none() {
        decision.state = State::TransportError;
    }
    decision
}

/// Rows 2 and 4: the spec is invalid, or a child could not be applied.
fn fault_decision(fault: &Fault) -> StateDecision {
    StateDecision {
        state: State::WorkloadError,
        workload: Some(fault.into()),
        progressing: false,
        recheck_at: None,
    }
}

/// Row 3 (the queue is not ready), row 4 (left out on purpose), and row 13 where there is no workload.
fn without_workload(inputs: &StateInputs<'_>) -> StateDecision {
    match (inputs.transport_fault, inputs.skip_reason) {
        (Some(cause), _) => {
            let message = format!("the workload waits for its queue: {cause}");
            decision(
                State::TransportError,
                ConditionStatus::Unknown,
                Reason::TransportNotReady,
                message,
            )
        }
        (None, Some(SkipReason::Paused)) => decision(
            State::Creating,
            false,
            Reason::Paused,
            "there is no workload, and none is created while the actor is paused",
        ),
        (None, Some(SkipReason::ReconcileOnceDone)) => decision(
            State::WorkloadError,
            false,
            Reason::WorkloadMissing,
            "the workload is gone, and asya.sh/reconcile: Once does not recreate it; change the spec or remove the \
             annotation to recreate it",
        ),
        (None, None) => decision(
            State::Creating,
            false,
            Reason::Progressing,
            "the workload is being created",
        ),
    }
}

/// Rows 5 to 14: the state of an existing workload. Rows 5 and 6 precede what KEDA reports (row 7).
fn workload_decision(inputs: &StateInputs<'_>, workload: &WorkloadRecord) -> StateDecision {
    let counts = ReplicaCounts::of(workload, inputs.hpa);
    let failure = failure(inputs, workload);
    let mut decision = match &failure {
        // Row 5: pods fail, and no pod of the current template is ready.
        Some(WorkloadFailure { class, message })
            if counts.desired > 0 && inputs.pods.current_ready == 0 =>
        {
            decision(state_of(*class), false, reason_of(*class), message.clone())
        }
        // Row 6: pods find no room on the nodes or in a quota.
        Some(WorkloadFailure {
            class: ProblemClass::PendingResources,
            message,
        }) if counts.ready < counts.desired => decision(
            State::PendingResources,
            false,
            Reason::PendingResources,
            message.clone(),
        ),
        _ => {
            let decision = pods_decision(inputs, workload, counts, failure.clone());
            with_scaling_error(inputs, decision)
        }
    };
    let creation_failure_expires = inputs.creation_failure.map(|failure| failure.ends);
    // A pod of the new template may fail while enough old ones are ready.
    let ends = [inputs.pods.failure_expires, creation_failure_expires];
    let ends = ends.into_iter().filter(|_| failure.is_some());
    let unready = unready_deadline(inputs).filter(|_| counts.ready < counts.desired);
    let deadlines = ends.chain([unready, decision.recheck_at]);
    decision.recheck_at = deadlines.flatten().filter(|at| *at > inputs.now).min();
    decision
}

/// Row 7: the scaling is not ready, which only replaces STATUS.
fn with_scaling_error(inputs: &StateInputs<'_>, decision: StateDecision) -> StateDecision {
    match inputs.scaling {
        Some(scaling) if scaling.condition.is_false() => StateDecision {
            state: State::ScalingError,
            ..decision
        },
        _ => decision,
    }
}

/// Rows 8 to 14, and 9a, which ends rows 10 and 13.
fn pods_decision(
    inputs: &StateInputs<'_>,
    workload: &WorkloadRecord,
    counts: ReplicaCounts,
    failure: Option<WorkloadFailure>,
) -> StateDecision {
    let mut decision = pods_row(inputs, workload, counts, failure);
    decision.progressing = matches!(
        decision.state,
        State::Creating | State::Updating | State::ScalingUp
    );
    let stuck_at = progress_deadline(inputs, &decision);
    if stuck_at.is_some_and(|ends| ends <= inputs.now) {
        return progress_deadline_exceeded(inputs, counts.ready, &progress(counts));
    }
    decision.recheck_at = stuck_at;
    decision
}

/// Rows 8 to 14: the pods, from none to all ready.
fn pods_row(
    inputs: &StateInputs<'_>,
    workload: &WorkloadRecord,
    counts: ReplicaCounts,
    failure: Option<WorkloadFailure>,
) -> StateDecision {
    let ReplicaCounts {
        desired,
        total,
        ready,
    } = counts;
    match failure {
        // Row 8: scaled to zero by the queue.
        _ if is_scaled_by_us(inputs) && desired == 0 && inputs.pods.existing == 0 => {
            let text = if inputs.scaling.is_some_and(|it| it.starts_pods) {
                "scaled to zero; messages in the queue start pods"
            } else {
                "scaled to zero; no message starts a pod, as condition ScalingReady says"
            };
            decision(State::Napping, true, Reason::ScaledToZero, text)
        }
        // Row 9: some pods fail.
        Some(WorkloadFailure { class, message }) if ready < desired => {
            decision(State::Degraded, false, reason_of(class), message)
        }
        // Row 10: a new template is being rolled out.
        _ if is_rolling(inputs, workload, ready, desired) => rolling_out(inputs, workload, counts),
        // Row 11: more pods exist than desired.
        _ if total > desired || (ready >= desired && is_scaling_down(inputs, desired)) => {
            let text = progress(counts);
            decision(State::ScalingDown, true, Reason::PodsReady, text)
        }
        // Row 12: a pod has been unready for too long.
        _ if ready < desired && unready_deadline(inputs).is_some_and(|ends| ends <= inputs.now) => {
            unready_for_too_long(inputs, counts)
        }
        // Row 13: pods are starting.
        _ if ready < desired => starting(inputs, counts),
        // Row 14: all pods are ready, or none is desired.
        _ => {
            let reason = if desired == 0 {
                Reason::ScaledToZero
            } else {
                Reason::PodsReady
            };
            decision(State::Running, true, reason, progress(counts))
        }
    }
}

fn rolling_out(
    inputs: &StateInputs<'_>,
    workload: &WorkloadRecord,
    counts: ReplicaCounts,
) -> StateDecision {
    let text = if workload.metadata.deleting {
        let next = match inputs.skip_reason {
            None => ", and recreated once it is gone",
            Some(_) => "",
        };
        format!("the workload is being deleted{next}; {}", progress(counts))
    } else {
        format!("rolling out; {}", progress(counts))
    };
    if counts.ready > 0 {
        decision(State::Updating, true, Reason::RollingOut, text)
    } else {
        decision(State::Updating, false, Reason::Progressing, text)
    }
}

fn unready_for_too_long(inputs: &StateInputs<'_>, counts: ReplicaCounts) -> StateDecision {
    let state = if counts.ready == 0 {
        State::WorkloadError
    } else {
        State::Degraded
    };
    let limit = inputs.unready_limit.unwrap_or_default().as_secs();
    let text = format!(
        "{}; a pod has been running for {limit} s without becoming ready",
        progress(counts)
    );
    decision(state, false, Reason::PodsNotReady, text)
}

fn starting(inputs: &StateInputs<'_>, counts: ReplicaCounts) -> StateDecision {
    let state = match inputs.previous {
        None | Some(State::Creating) => State::Creating,
        Some(_) => State::ScalingUp,
    };
    if counts.ready > 0 {
        decision(state, true, Reason::Scaling, progress(counts))
    } else {
        decision(state, false, Reason::Progressing, progress(counts))
    }
}

fn progress(ReplicaCounts { ready, desired, .. }: ReplicaCounts) -> String {
    format!("{ready} of {desired} pods are ready")
}

/// Pods that another autoscaler scales to zero are not started by a message.
fn is_scaled_by_us(inputs: &StateInputs<'_>) -> bool {
    let scaling = inputs.scaling;
    scaling.is_some_and(|scaling| scaling.condition.reason != Reason::ScaledByOther)
}

/// When a rollout or a scale-up (rows 10 and 13) has made no progress for too long
/// (`progress_deadline_exceeded`, row 9a of STA-4).
fn progress_deadline(inputs: &StateInputs<'_>, decision: &StateDecision) -> Option<Timestamp> {
    let limit = inputs.progress_limit.filter(|_| decision.progressing)?;
    inputs.progressing_since.checked_add(limit).ok()
}

fn progress_deadline_exceeded(
    inputs: &StateInputs<'_>,
    ready: i32,
    progress: &str,
) -> StateDecision {
    let state = if ready == 0 {
        State::WorkloadError
    } else {
        State::Degraded
    };
    let limit = inputs.progress_limit.unwrap_or_default().as_secs();
    let message =
        format!("{progress}; no further pod became ready for {limit} s (timeout.progress)");
    let reason = Reason::ProgressDeadlineExceeded;
    StateDecision {
        progressing: true,
        ..decision(state, false, reason, message)
    }
}

/// Replica counts reported in status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaCounts {
    pub desired: i32,
    /// Existing replicas.
    pub total: i32,
    pub ready: i32,
}

impl ReplicaCounts {
    /// Reads the counts from a workload and the HPA that scales it.
    pub fn of(workload: &WorkloadRecord, hpa: Option<&HpaRecord>) -> Self {
        Self {
            desired: desired_replicas(workload.desired, hpa),
            total: workload.total,
            ready: workload.ready,
        }
    }
}

/// Why pods fail or cannot be created.
#[derive(Clone, Debug)]
struct WorkloadFailure {
    class: ProblemClass,
    message: String,
}

/// The most important failure: of the pods, or one that keeps pods from being created.
fn failure(inputs: &StateInputs<'_>, workload: &WorkloadRecord) -> Option<WorkloadFailure> {
    let pod_failure = inputs.pods.failure.as_ref().map(|failed| WorkloadFailure {
        class: failed.problem.class,
        message: failed.message(),
    });
    let from_events = inputs.creation_failure.map(|it| &it.failure);
    let creation_failure = workload.replica_failure.as_ref().or(from_events);
    let creation_failure = creation_failure.map(|failure| WorkloadFailure {
        class: if failure.is_quota() {
            ProblemClass::PendingResources
        } else {
            ProblemClass::WorkloadError
        },
        message: format!("pods cannot be created: {}", failure.message),
    });
    pod_failure
        .into_iter()
        .chain(creation_failure)
        .min_by_key(|failure| failure.class)
}

/// Row 10. Replica counts of an older generation say nothing about a rollout, but the pods do. A workload being deleted
/// is replaced by a new one.
fn is_rolling(
    inputs: &StateInputs<'_>,
    workload: &WorkloadRecord,
    ready: i32,
    desired: i32,
) -> bool {
    let counts_are_current = workload.observed_generation >= workload.generation;
    inputs.pods.outdated > 0
        || workload.metadata.deleting
        || (counts_are_current && workload.rolling)
        || (inputs.previous == Some(State::Updating) && ready < desired)
}

/// Row 11, second half: the workload's counts exclude terminating pods. They say nothing about pods that are starting.
fn is_scaling_down(inputs: &StateInputs<'_>, desired: i32) -> bool {
    let fewer = inputs
        .previously_desired
        .is_some_and(|previous| previous > desired);
    inputs.pods.terminating > 0 && (fewer || inputs.previous == Some(State::ScalingDown))
}

fn unready_deadline(inputs: &StateInputs<'_>) -> Option<Timestamp> {
    let limit = inputs.unready_limit?;
    inputs.pods.unready_since?.checked_add(limit).ok()
}

pub(super) fn state_of(class: ProblemClass) -> State {
    match class {
        ProblemClass::ConfigError => State::ConfigError,
        ProblemClass::VolumeError => State::VolumeError,
        ProblemClass::ImagePullError => State::ImagePullError,
        ProblemClass::RuntimeError => State::RuntimeError,
        ProblemClass::SidecarError => State::SidecarError,
        ProblemClass::WorkloadError => State::WorkloadError,
        ProblemClass::PendingResources => State::PendingResources,
    }
}

pub(super) fn reason_of(class: ProblemClass) -> Reason {
    match class {
        ProblemClass::ConfigError => Reason::ConfigError,
        ProblemClass::VolumeError => Reason::VolumeError,
        ProblemClass::ImagePullError => Reason::ImagePullError,
        ProblemClass::RuntimeError => Reason::RuntimeError,
        ProblemClass::SidecarError => Reason::SidecarError,
        ProblemClass::WorkloadError => Reason::WorkloadError,
        ProblemClass::PendingResources => Reason::PendingResources,
    }
}

fn decision(
    state: State,
    ready: impl Into<ConditionStatus>,
    reason: Reason,
    message: impl Into<String>,
) -> StateDecision {
    StateDecision {
        state,
        workload: Some(ConditionValue::new(ready, reason, message)),
        progressing: false,
        recheck_at: None,
    }
}

#[cfg(test)]
mod tests;
