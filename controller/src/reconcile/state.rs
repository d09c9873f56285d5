//! Computes the actor's STATUS and its condition `WorkloadReady` by the decision table STA-4.

use std::time::Duration;

use asya_shared::api::State;
use k8s_openapi::jiff::Timestamp;

use crate::fault::{Fault, Reason};
use crate::pods::refusals::Refusal;
use crate::pods::summary::{self, Pods};
use crate::record::{Class, HpaRecord, WorkloadRecord};
use crate::scaling::ready::ScalingReady;
use crate::scaling::replicas::desired_replicas;

/// The inputs of the decision table.
pub struct StateFacts<'a> {
    /// The actor is being deleted.
    pub deleting: bool,
    /// Why the spec cannot be acted on.
    pub refused: Option<&'a Fault>,
    /// Why the queue cannot be used.
    pub transport: Option<&'a str>,
    /// Why a missing workload is not created.
    pub left_alone: Option<LeftAlone>,
    /// Why the workload could not be brought to its desired state.
    pub child: Option<&'a Fault>,
    pub workload: Option<&'a WorkloadRecord>,
    /// Why pods cannot be created, if the workload's own status does not say so.
    pub refusal: Option<&'a Refusal>,
    pub pods: &'a Pods,
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
pub enum LeftAlone {
    /// The actor is paused.
    Paused,
    /// The actor was ready once, and `asya.sh/reconcile: Once` leaves its children alone since.
    Done,
}

/// STATUS and the matching condition.
#[derive(Clone, Debug, PartialEq)]
pub struct StateVerdict {
    /// `status.status`.
    pub state: State,
    /// Condition `WorkloadReady`; `None` leaves the current one unchanged.
    pub workload: Option<WorkloadReady>,
    /// Whether more pods are starting, or should be.
    pub progressing: bool,
    /// When the verdict changes through the passage of time alone.
    pub again: Option<Timestamp>,
}

/// Condition `WorkloadReady`.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadReady {
    /// `None` is `Unknown`.
    pub ready: Option<bool>,
    pub reason: Reason,
    pub message: String,
}

/// Evaluates the table of STA-4: the first matching row wins.
pub fn decide(facts: &StateFacts<'_>) -> StateVerdict {
    if facts.deleting {
        return StateVerdict {
            state: State::Terminating,
            workload: None,
            progressing: false,
            again: None,
        };
    }
    let mut verdict = match (facts.refused, facts.child) {
        (Some(fault), _) | (None, Some(fault)) => of_fault(fault),
        (None, None) => match facts.workload {
            Some(workload) => of_workload(facts, workload),
            None => without_workload(facts),
        },
    };
    if facts.transport.is_some() && facts.refused.is_none() {
        verdict.state = State::TransportError;
    }
    verdict
}

/// Rows 2 and 4.
fn of_fault(fault: &Fault) -> StateVerdict {
    verdict(
        State::WorkloadError,
        Some(false),
        fault.reason,
        fault.message.clone(),
    )
}

fn without_workload(facts: &StateFacts<'_>) -> StateVerdict {
    match (facts.transport, facts.left_alone) {
        (Some(cause), _) => {
            let message = format!("the workload waits for its queue: {cause}");
            verdict(
                State::TransportError,
                None,
                Reason::TransportNotReady,
                message,
            )
        }
        (None, Some(LeftAlone::Paused)) => verdict(
            State::Creating,
            Some(false),
            Reason::Paused,
            "there is no workload, and none is made while the actor is paused".to_owned(),
        ),
        (None, Some(LeftAlone::Done)) => verdict(
            State::WorkloadError,
            Some(false),
            Reason::WorkloadMissing,
            "the workload is gone, and asya.sh/reconcile: Once leaves it so; change the spec, or remove that \
             annotation, to have it made anew"
                .to_owned(),
        ),
        (None, None) => verdict(
            State::Creating,
            Some(false),
            Reason::Progressing,
            "the workload is being created".to_owned(),
        ),
    }
}

/// Rows 5 to 14.
fn of_workload(facts: &StateFacts<'_>, workload: &WorkloadRecord) -> StateVerdict {
    let counts = Counts::of(workload, facts.hpa);
    let failure = failure(facts, workload);
    let mut verdict = match &failure {
        Some((class, message)) if counts.desired > 0 && facts.pods.current_ready == 0 => verdict(
            state_of(*class),
            Some(false),
            reason_of(*class),
            message.clone(),
        ),
        Some((Class::PendingResources, message)) if counts.ready < counts.desired => verdict(
            State::PendingResources,
            Some(false),
            Reason::PendingResources,
            message.clone(),
        ),
        _ => {
            let verdict = of_pods(facts, workload, counts, failure);
            unless_scaling_fails(facts, verdict)
        }
    };
    let refused_until = facts.refusal.map(|refusal| refusal.ends);
    let of_pods = [
        unready_too_long(facts),
        facts.pods.failure_ends,
        refused_until,
    ];
    let ends = of_pods
        .into_iter()
        .filter(|_| counts.ready < counts.desired)
        .chain([verdict.again]);
    verdict.again = ends.flatten().filter(|ends| *ends > facts.now).min();
    verdict
}

/// Row 7.
fn unless_scaling_fails(facts: &StateFacts<'_>, verdict: StateVerdict) -> StateVerdict {
    match facts.scaling {
        Some(scaling) if scaling.ready == Some(false) => StateVerdict {
            state: State::ScalingError,
            ..verdict
        },
        _ => verdict,
    }
}

/// Rows 8 to 14.
fn of_pods(
    facts: &StateFacts<'_>,
    workload: &WorkloadRecord,
    counts: Counts,
    failure: Option<(Class, String)>,
) -> StateVerdict {
    let Counts {
        desired,
        total,
        ready,
    } = counts;
    let progress = || format!("{ready} of {desired} pods are ready");
    let mut verdict = match failure {
        _ if is_scaled_by_us(facts) && desired == 0 && facts.pods.existing == 0 => {
            let text = "scaled to zero; messages in the queue bring pods".to_owned();
            verdict(State::Napping, Some(true), Reason::ScaledToZero, text)
        }
        Some((class, message)) if ready < desired => {
            verdict(State::Degraded, Some(false), reason_of(class), message)
        }
        _ if is_rolling(facts, workload, ready, desired) => {
            let any = if ready > 0 {
                (Some(true), Reason::RollingOut)
            } else {
                (Some(false), Reason::Progressing)
            };
            let text = if workload.metadata.deleting {
                let next = match facts.left_alone {
                    None => ", and made anew once it is gone",
                    Some(_) => "",
                };
                format!("the workload is being deleted{next}; {}", progress())
            } else {
                format!("rolling out; {}", progress())
            };
            verdict(State::Updating, any.0, any.1, text)
        }
        _ if total > desired || is_leaving(facts, desired) => verdict(
            State::ScalingDown,
            Some(true),
            Reason::PodsReady,
            progress(),
        ),
        _ if ready < desired && unready_too_long(facts).is_some_and(|ends| ends <= facts.now) => {
            let state = if ready == 0 {
                State::WorkloadError
            } else {
                State::Degraded
            };
            let limit = facts.unready_limit.unwrap_or_default().as_secs();
            let message = format!(
                "{}; a pod has run for {limit} s without becoming ready",
                progress()
            );
            verdict(state, Some(false), Reason::PodsNotReady, message)
        }
        _ if ready < desired => {
            let state = match facts.previous {
                None | Some(State::Creating) => State::Creating,
                Some(_) => State::ScalingUp,
            };
            let any = if ready > 0 {
                (Some(true), Reason::Scaling)
            } else {
                (Some(false), Reason::Progressing)
            };
            verdict(state, any.0, any.1, progress())
        }
        _ => {
            let reason = if desired == 0 {
                Reason::ScaledToZero
            } else {
                Reason::PodsReady
            };
            verdict(State::Running, Some(true), reason, progress())
        }
    };
    verdict.progressing = matches!(
        verdict.state,
        State::Creating | State::Updating | State::ScalingUp
    );
    let stuck_at = progress_ends(facts, &verdict);
    if stuck_at.is_some_and(|ends| ends <= facts.now) {
        return without_progress(facts, ready, &progress());
    }
    verdict.again = stuck_at;
    verdict
}

/// Pods that another autoscaler scales to zero are not started by a message.
fn is_scaled_by_us(facts: &StateFacts<'_>) -> bool {
    let scaling = facts.scaling;
    scaling.is_some_and(|it| !matches!(it.reason, Reason::ScaledByOther))
}

/// When a change in progress exceeds its deadline (row 9a).
fn progress_ends(facts: &StateFacts<'_>, verdict: &StateVerdict) -> Option<Timestamp> {
    let limit = facts.progress_limit.filter(|_| verdict.progressing)?;
    facts.progressing_since.checked_add(limit).ok()
}

fn without_progress(facts: &StateFacts<'_>, ready: i32, progress: &str) -> StateVerdict {
    let state = if ready == 0 {
        State::WorkloadError
    } else {
        State::Degraded
    };
    let limit = facts.progress_limit.unwrap_or_default().as_secs();
    let message = format!("{progress}; none became ready for {limit} s (timeout.progress)");
    let reason = Reason::ProgressDeadlineExceeded;
    StateVerdict {
        progressing: true,
        ..verdict(state, Some(false), reason, message)
    }
}

/// Replica counts reported in status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Desired replicas.
    pub desired: i32,
    /// Existing replicas.
    pub total: i32,
    /// Ready replicas.
    pub ready: i32,
}

impl Counts {
    /// Reads the counts from a workload and the HPA that scales it.
    pub fn of(workload: &WorkloadRecord, hpa: Option<&HpaRecord>) -> Self {
        Self {
            desired: desired_replicas(workload.desired, hpa),
            total: workload.total,
            ready: workload.ready,
        }
    }
}

/// The most important failure: of the pods, or one that keeps pods from being created.
fn failure(facts: &StateFacts<'_>, workload: &WorkloadRecord) -> Option<(Class, String)> {
    let of_pods = facts
        .pods
        .failure
        .as_ref()
        .map(|(problem, pod)| (problem.class, summary::message(problem, pod)));
    let told = facts.refusal.map(|refusal| &refusal.failure);
    let refused = workload.replica_failure.as_ref().or(told).map(|failure| {
        let class = if failure.is_quota() {
            Class::PendingResources
        } else {
            Class::WorkloadError
        };
        (
            class,
            format!("pods cannot be created: {}", failure.message),
        )
    });
    of_pods
        .into_iter()
        .chain(refused)
        .min_by_key(|(class, _)| *class)
}

/// Row 10. Replica counts of an older generation say nothing about a rollout, but the pods do. A workload being deleted
/// is replaced by a new one.
fn is_rolling(facts: &StateFacts<'_>, workload: &WorkloadRecord, ready: i32, desired: i32) -> bool {
    let counts_are_current = workload.observed_generation >= workload.generation;
    facts.pods.old > 0
        || workload.metadata.deleting
        || (counts_are_current && workload.rolling)
        || (facts.previous == Some(State::Updating) && ready < desired)
}

/// Row 11, second half: the workload's counts exclude terminating pods.
fn is_leaving(facts: &StateFacts<'_>, desired: i32) -> bool {
    let fewer = facts
        .previously_desired
        .is_some_and(|before| before > desired);
    facts.pods.leaving > 0 && (fewer || facts.previous == Some(State::ScalingDown))
}

fn unready_too_long(facts: &StateFacts<'_>) -> Option<Timestamp> {
    let limit = facts.unready_limit?;
    facts.pods.unready_since?.checked_add(limit).ok()
}

pub(super) fn state_of(class: Class) -> State {
    match class {
        Class::ConfigError => State::ConfigError,
        Class::VolumeError => State::VolumeError,
        Class::ImagePullError => State::ImagePullError,
        Class::RuntimeError => State::RuntimeError,
        Class::SidecarError => State::SidecarError,
        Class::WorkloadError => State::WorkloadError,
        Class::PendingResources => State::PendingResources,
    }
}

fn reason_of(class: Class) -> Reason {
    match class {
        Class::ConfigError => Reason::ConfigError,
        Class::VolumeError => Reason::VolumeError,
        Class::ImagePullError => Reason::ImagePullError,
        Class::RuntimeError => Reason::RuntimeError,
        Class::SidecarError => Reason::SidecarError,
        Class::WorkloadError => Reason::WorkloadError,
        Class::PendingResources => Reason::PendingResources,
    }
}

fn verdict(state: State, ready: Option<bool>, reason: Reason, message: String) -> StateVerdict {
    StateVerdict {
        state,
        workload: Some(WorkloadReady {
            ready,
            reason,
            message,
        }),
        progressing: false,
        again: None,
    }
}

#[cfg(test)]
mod tests;
