use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, PodCounts, ResolvedTarget, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{BindingStateDecision, BindingStateInputs, decide};
use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::{Fault, Reason};
use crate::pods::summary::{FailedPod, PodSummary};
use crate::reconcile::model::target_pods::TargetPodCounts;
use crate::record::{Problem, ProblemClass};
use crate::scaling::ready::ScalingReady;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// `total` pods, of which `ready` have a sidecar and are ready.
fn pods(total: i32, ready: i32) -> TargetPodCounts {
    TargetPodCounts {
        pods: PodCounts {
            matched: total,
            injected: ready,
            not_injected: total - ready,
            ..PodCounts::default()
        },
        ready,
        total,
        ..TargetPodCounts::default()
    }
}

fn failing(class: ProblemClass, container: &str) -> PodSummary {
    let problem = Problem {
        class,
        container: Some(container.into()),
        reason: "x".into(),
    };
    PodSummary {
        failure: Some(FailedPod {
            problem,
            pod: Arc::from("p"),
        }),
        ..PodSummary::default()
    }
}

/// Condition `ScalingReady`.
#[derive(Clone, Copy)]
enum Scaling {
    Off,
    Unknown,
    Ready,
    NotReady,
}

impl Scaling {
    fn ready(self) -> Option<ScalingReady> {
        let status = match self {
            Self::Off => return None,
            Self::Unknown => ConditionStatus::Unknown,
            Self::Ready => ConditionStatus::True,
            Self::NotReady => ConditionStatus::False,
        };
        Some(ConditionValue::new(status, Reason::RivalAutoscaler, "").into())
    }
}

struct Row {
    refused: bool,
    transport: bool,
    target: Option<Reason>,
    counted: Option<TargetPodCounts>,
    health: PodSummary,
    injected: (bool, Reason),
    scaling: Scaling,
    desired: Option<i32>,
    previous: AsyncActorStatus,
    unready_limit: Duration,
    progress_limit: Duration,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            refused: false,
            transport: false,
            target: None,
            counted: Some(pods(2, 2)),
            health: PodSummary::default(),
            injected: (true, Reason::AllPodsInjected),
            scaling: Scaling::Off,
            desired: Some(2),
            previous: AsyncActorStatus::default(),
            unready_limit: Duration::from_mins(5),
            progress_limit: Duration::from_mins(10),
        }
    }
}

impl Row {
    fn decide(&self) -> BindingStateDecision {
        let fault = |reason| Fault::until_change(reason, "");
        let refused = fault(Reason::ValidationError);
        let target = self.target.map(fault);
        let injected = ConditionValue::new(self.injected.0, self.injected.1, "");
        let scaling = self.scaling.ready();
        decide(&BindingStateInputs {
            spec_fault: self.refused.then_some(&refused),
            transport_fault: self.transport.then_some("away"),
            target_fault: target.as_ref(),
            pods: self.counted.as_ref().map(|counted| (counted, &self.health)),
            injected: Some(&injected),
            scaling: scaling.as_ref(),
            desired: self.desired,
            previous: &self.previous,
            generation: 1,
            unready_limit: Some(self.unready_limit),
            progress_limit: Some(self.progress_limit),
            now: now(),
        })
    }
}

fn bound() -> AsyncActorStatus {
    AsyncActorStatus {
        resolved_target: Some(ResolvedTarget::default()),
        ..AsyncActorStatus::default()
    }
}

const ABSENT: Option<Reason> = Some(Reason::TargetNotFound);
const STOPPED: Option<Reason> = Some(Reason::TargetStopped);
const CONFLICT: (bool, Reason) = (false, Reason::SpecConflict);
const UNINJECTED: (bool, Reason) = (false, Reason::PodsNotInjected);

#[expect(clippy::unnecessary_wraps, reason = "matches the field of the row")]
fn some(total: i32, ready: i32) -> Option<TargetPodCounts> {
    Some(pods(total, ready))
}

fn crash() -> PodSummary {
    failing(ProblemClass::SidecarError, "asya-sidecar")
}

type Change = Box<dyn Fn(&mut Row)>;

/// BIND-6
#[test]
fn first_matching_row_decides() {
    let rows: Vec<(State, Change)> = vec![
        (
            State::WorkloadError,
            Box::new(|row| (row.refused, row.transport) = (true, true)),
        ),
        (
            State::TransportError,
            Box::new(|row| (row.transport, row.target) = (true, ABSENT)),
        ),
        (
            State::Creating,
            Box::new(|row| (row.target, row.health) = (ABSENT, crash())),
        ),
        (
            State::WorkloadError,
            Box::new(|row| (row.target, row.previous) = (ABSENT, bound())),
        ),
        (
            State::Napping,
            Box::new(|row| (row.target, row.previous) = (STOPPED, bound())),
        ),
        (
            State::SidecarError,
            Box::new(|row| {
                (row.counted, row.health, row.scaling) = (some(2, 0), crash(), Scaling::NotReady);
            }),
        ),
        (
            State::Degraded,
            Box::new(|row| (row.counted, row.health) = (some(2, 1), crash())),
        ),
        (
            State::RuntimeError,
            Box::new(|row| {
                (row.counted, row.health) = (
                    some(2, 0),
                    failing(ProblemClass::RuntimeError, "asya-runtime"),
                );
            }),
        ),
        (
            State::ScalingUp,
            Box::new(|row| {
                (row.counted, row.health) =
                    (some(2, 0), failing(ProblemClass::WorkloadError, "model"));
            }),
        ),
        (
            State::WorkloadError,
            Box::new(|row| {
                (row.counted, row.injected, row.scaling) =
                    (some(2, 0), CONFLICT, Scaling::NotReady);
            }),
        ),
        (
            State::Degraded,
            Box::new(|row| (row.counted, row.injected) = (some(2, 1), CONFLICT)),
        ),
        (
            State::ScalingError,
            Box::new(|row| row.scaling = Scaling::NotReady),
        ),
        (
            State::Running,
            Box::new(|row| (row.counted, row.desired) = (some(0, 0), Some(0))),
        ),
        (
            State::Napping,
            Box::new(|row| {
                (row.counted, row.desired, row.scaling) = (some(0, 0), Some(0), Scaling::Ready);
            }),
        ),
        (State::Running, Box::new(|row| row.scaling = Scaling::Ready)),
        (
            State::Running,
            Box::new(|row| row.scaling = Scaling::Unknown),
        ),
        (State::ScalingDown, Box::new(|row| row.counted = some(3, 2))),
        (
            State::ScalingUp,
            Box::new(|row| (row.counted, row.injected) = (some(2, 1), UNINJECTED)),
        ),
        (State::ScalingUp, Box::new(|row| row.counted = some(0, 0))),
        (State::Running, Box::new(|_| {})),
        (State::Running, Box::new(|row| row.desired = None)),
    ];
    for (index, (state, change)) in rows.into_iter().enumerate() {
        let mut row = Row::default();
        change(&mut row);
        assert_eq!(row.decide().state, state, "row {index}");
    }
}

/// BIND-6
#[test]
fn pods_that_never_become_ready_degrade_the_actor_after_five_minutes() {
    let waiting = |since: &str, ready_before| Row {
        counted: Some(pods(2, 1)),
        previous: without_progress_since(since, ready_before),
        ..Row::default()
    };
    let recent = waiting("2026-01-01T00:06:00Z", 1).decide();
    assert_eq!(recent.state, State::ScalingUp);
    assert_eq!(
        recent.recheck_at,
        Some("2026-01-01T00:11:00Z".parse().unwrap())
    );
    let long = waiting("2026-01-01T00:05:00Z", 1).decide();
    let ends = Some("2026-01-01T00:15:00Z".parse().unwrap());
    assert_eq!(
        (long.state, long.recheck_at),
        (State::Degraded, ends),
        "FW-26"
    );
    let one_more = waiting("2026-01-01T00:05:00Z", 0).decide();
    assert_eq!(
        (one_more.state, one_more.progressing_since),
        (State::ScalingUp, Some(now()))
    );
}

/// Status of an actor without progress since `since`.
fn without_progress_since(since: &str, ready: i32) -> AsyncActorStatus {
    AsyncActorStatus {
        observed_generation: Some(1),
        ready_replicas: Some(ready),
        progressing_since: Some(Time(since.parse().unwrap())),
        ..bound()
    }
}

/// SAFE-28, FW-26
#[test]
fn change_without_progress_fails_at_the_actors_progress_limit() {
    let rolling = (false, Reason::RolloutInProgress);
    let waiting = (false, Reason::RolloutWaiting);
    let healthy = Row::default().injected;
    let mins = Duration::from_mins;
    for (injected, ready, since, limits, state, stuck) in [
        (
            healthy,
            1,
            "00:00:00",
            (mins(60), mins(60)),
            State::ScalingUp,
            None,
        ),
        (
            healthy,
            1,
            "00:00:00",
            (mins(10), mins(10)),
            State::Degraded,
            Some(mins(10)),
        ),
        (
            healthy,
            0,
            "00:00:00",
            (mins(10), mins(10)),
            State::WorkloadError,
            Some(mins(10)),
        ),
        (
            healthy,
            1,
            "00:04:00",
            (mins(5), mins(10)),
            State::Degraded,
            None,
        ),
        (
            rolling,
            1,
            "00:01:00",
            (mins(5), mins(10)),
            State::Updating,
            None,
        ),
        (
            rolling,
            1,
            "00:00:00",
            (mins(5), mins(10)),
            State::Degraded,
            Some(mins(10)),
        ),
        (
            waiting,
            1,
            "00:00:00",
            (mins(5), mins(10)),
            State::Updating,
            None,
        ),
    ] {
        let decision = Row {
            counted: Some(pods(2, ready)),
            injected,
            previous: without_progress_since(&format!("2026-01-01T{since}Z"), ready),
            unready_limit: limits.0,
            progress_limit: limits.1,
            ..Row::default()
        }
        .decide();
        let row = format!("{injected:?}, {ready} ready since {since}, {limits:?}");
        assert_eq!(
            (decision.state, decision.exceeded_limit),
            (state, stuck),
            "{row}"
        );
    }
}

/// SAFE-43
#[test]
fn clock_that_was_ahead_does_not_put_the_deadline_off() {
    for (since, expected) in [
        ("2026-01-01T00:15:00Z", "2026-01-01T00:15:00Z"),
        ("2026-01-01T00:15:01Z", "2026-01-01T00:10:00Z"),
    ] {
        let decision = Row {
            counted: Some(pods(2, 1)),
            previous: without_progress_since(since, 1),
            ..Row::default()
        }
        .decide();
        assert_eq!(decision.progressing_since, Some(expected.parse().unwrap()));
    }
}

/// BIND-48
#[test]
fn state_is_kept_until_the_pods_are_listed() {
    for state in [State::Running, State::Degraded] {
        let previous = AsyncActorStatus {
            status: Some(state),
            ..bound()
        };
        let decision = Row {
            counted: None,
            previous,
            ..Row::default()
        }
        .decide();
        assert_eq!(decision.state, state);
    }
    assert_eq!(
        Row {
            counted: None,
            ..Row::default()
        }
        .decide()
        .state,
        State::Creating
    );
}

/// BIND-6, FW-26: the clock goes on, so that a deadline that was exceeded stays exceeded after a failed exit.
#[test]
fn failing_pods_are_not_ready_and_make_no_progress() {
    let since = now() - SignedDuration::from_mins(9);
    let decide = |counted, generation| {
        let previous = AsyncActorStatus {
            observed_generation: Some(generation),
            ready_replicas: Some(0),
            progressing_since: Some(Time(since)),
            ..AsyncActorStatus::default()
        };
        let row = Row {
            counted,
            health: crash(),
            previous,
            ..Row::default()
        };
        row.decide()
    };
    let text = "Container asya-sidecar: x (pod p)";
    let failure = Some(ConditionValue::new(false, Reason::SidecarError, text));
    let none_ready = decide(some(2, 0), 1);
    assert_eq!(none_ready.failure, failure);
    assert_eq!(none_ready.progressing_since, Some(since));
    assert_eq!(
        decide(some(2, 0), 9).progressing_since,
        None,
        "another spec"
    );
    let some_ready = decide(some(2, 1), 1);
    assert_eq!(
        (some_ready.failure, some_ready.progressing_since),
        (failure, None)
    );
    let surplus = decide(some(3, 2), 1);
    assert_eq!((surplus.state, surplus.failure), (State::Degraded, None));
}

/// BIND-6, SAFE-28: a node that is gone keeps a pod terminating for long.
#[test]
fn terminating_pod_hides_no_pod_that_does_not_start() {
    let decide = |total, ready| {
        let row = Row {
            counted: some(total, ready),
            desired: Some(1),
            ..Row::default()
        };
        row.decide().state
    };
    assert_eq!(decide(2, 0), State::ScalingUp);
    assert_eq!(decide(2, 1), State::ScalingDown);
}
