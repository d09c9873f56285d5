//! STATUS of a binding, as the decision table BIND-6.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, State};
use asya_shared::names::{RUNTIME_CONTAINER, SIDECAR_CONTAINER};
use k8s_openapi::jiff::Timestamp;

use crate::fault::{Fault, Reason};
use crate::pods::summary::Pods;
use crate::reconcile::model::bound_pods::Counted;
use crate::reconcile::model::condition_types::WORKLOAD_READY;
use crate::reconcile::model::condition_types::{Injected, TARGET_RESOLVED};
use crate::reconcile::state::state_of;
use crate::scaling::ready::ScalingReady;

/// All that the table reads.
pub(super) struct Facts<'a> {
    /// The spec cannot be acted on, or what pods need cannot be made.
    pub(super) refused: Option<&'a Fault>,
    /// The queue cannot be used.
    pub(super) transport: Option<&'a str>,
    /// The target cannot be bound.
    pub(super) target: Option<&'a Fault>,
    /// Its pods; `None` while nobody has listed them.
    pub(super) pods: Option<(&'a Counted, &'a Pods)>,
    /// Condition `Injected`; `None` while it stays as it stands.
    pub(super) injected: Option<&'a Injected>,
    /// Condition `ScalingReady`, while the queue is to decide the number of pods.
    pub(super) scaling: Option<&'a ScalingReady>,
    /// Pods that the target asks for, where it says so.
    pub(super) desired: Option<i32>,
    /// The status of the last pass.
    pub(super) previous: &'a AsyncActorStatus,
    /// Of the actor's spec.
    pub(super) generation: i64,
    /// How long a pod may run without being ready; `None` is for ever.
    pub(super) unready_limit: Option<Duration>,
    /// How long a change may go on without another pod becoming ready (FW-26); `None` is for ever.
    pub(super) progress_limit: Option<Duration>,
    /// Now.
    pub(super) now: Timestamp,
}

/// STATUS, and when time alone changes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// `status.status`.
    pub(super) state: State,
    /// Since when no further pod has become ready although more are wished.
    pub(super) progressing_since: Option<Timestamp>,
    /// A change has gone on without progress for this long, which is too long (FW-26).
    pub(super) stuck: Option<Duration>,
    /// When time alone changes the verdict.
    pub(super) again: Option<Timestamp>,
}

impl From<State> for Verdict {
    fn from(state: State) -> Self {
        Self {
            state,
            progressing_since: None,
            stuck: None,
            again: None,
        }
    }
}

/// Walks the table of BIND-6: the first row that holds decides.
pub(super) fn decide(facts: &Facts<'_>) -> Verdict {
    if facts.refused.is_some() {
        return State::WorkloadError.into();
    }
    if facts.transport.is_some() {
        return State::TransportError.into();
    }
    if let Some(fault) = facts.target {
        return if fault.reason == Reason::TargetStopped {
            State::Napping.into()
        } else if was_bound(facts.previous) {
            State::WorkloadError.into()
        } else {
            State::Creating.into()
        };
    }
    let Some((counted, pods)) = facts.pods else {
        let state = facts.previous.status.unwrap_or(State::Creating);
        return Verdict {
            progressing_since: facts
                .previous
                .progressing_since
                .as_ref()
                .map(|since| since.0),
            ..state.into()
        };
    };
    let mut verdict = of_pods(facts, counted, pods);
    let ends = pods.failure_ends.filter(|ends| *ends > facts.now);
    verdict.again = verdict.again.into_iter().chain(ends).min();
    verdict
}

/// A target that is lost is told apart from one that has never been there.
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

fn of_pods(facts: &Facts<'_>, counted: &Counted, pods: &Pods) -> Verdict {
    let (ready, total) = (counted.ready, counted.total);
    let desired = facts.desired.unwrap_or(total);
    let ours = |name: &str| [RUNTIME_CONTAINER, SIDECAR_CONTAINER].contains(&name);
    let failure = pods.failure.as_ref().map(|(problem, _)| problem);
    let failure = failure.filter(|problem| problem.container.as_deref().is_some_and(ours));
    if let Some(problem) = failure {
        return if ready == 0 {
            state_of(problem.class).into()
        } else {
            State::Degraded.into()
        };
    }
    let never_injects = |it: &&Injected| {
        it.0 == Some(false)
            && matches!(
                it.1,
                Reason::ProbeFailed
                    | Reason::ProbeRejected
                    | Reason::RolloutHalted
                    | Reason::StrategyNotAllowed
                    | Reason::SpecConflict
                    | Reason::TargetURLUnknown
            )
    };
    if facts.injected.as_ref().is_some_and(never_injects) {
        return if counted.pods.injected == 0 {
            State::WorkloadError.into()
        } else {
            State::Degraded.into()
        };
    }
    if facts.scaling.is_some_and(|it| it.ready == Some(false)) {
        return State::ScalingError.into();
    }
    let injected = facts.injected.as_ref().map(|it| it.1);
    match () {
        () if total == 0 && desired == 0 && facts.scaling.is_some() => State::Napping.into(),
        () if total == 0 && desired == 0 => State::Running.into(),
        // It waits for others, who have no deadline.
        () if injected == Some(Reason::RolloutWaiting) => State::Updating.into(),
        () if injected == Some(Reason::RolloutInProgress) => {
            progressing(facts, ready, State::Updating, None)
        }
        () if total > desired => State::ScalingDown.into(),
        () if ready < desired => progressing(facts, ready, State::ScalingUp, facts.unready_limit),
        () => State::Running.into(),
    }
}

/// A change that goes on: `limit` ends it, and so does FW-26's; whatever changes spec or ready pods begins anew.
fn progressing(facts: &Facts<'_>, ready: i32, state: State, limit: Option<Duration>) -> Verdict {
    let previous = facts.previous;
    let same = previous.observed_generation == Some(facts.generation)
        && previous.ready_replicas == Some(ready);
    let since = previous.progressing_since.as_ref().filter(|_| same);
    let since = since.map_or(facts.now, |since| since.0);
    let ends = |limit: Option<Duration>| since.checked_add(limit?).ok();
    let is_over = |limit| ends(limit).is_some_and(|ends| ends <= facts.now);
    let stuck = facts.progress_limit.filter(|it| is_over(Some(*it)));
    let state = match () {
        () if stuck.is_some() && ready == 0 => State::WorkloadError,
        () if stuck.is_some() || is_over(limit) => State::Degraded,
        () => state,
    };
    let next = [ends(limit), ends(facts.progress_limit)]
        .into_iter()
        .flatten();
    Verdict {
        state,
        progressing_since: Some(since),
        stuck,
        again: next.filter(|ends| *ends > facts.now).min(),
    }
}

#[cfg(test)]
mod tests;
