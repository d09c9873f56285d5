use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, PodCounts, ResolvedTarget, State};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{BindingStateFacts, BindingVerdict, decide};
use crate::fault::{Fault, Reason};
use crate::pods::summary::Pods;
use crate::reconcile::model::bound_pods::Counted;
use crate::record::{Class, Problem};
use crate::scaling::ready::ScalingReady;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// `total` pods, of which `ready` have a sidecar and are ready.
fn pods(total: i32, ready: i32) -> Counted {
    Counted {
        pods: PodCounts {
            matched: total,
            injected: ready,
            not_injected: total - ready,
            ..PodCounts::default()
        },
        ready,
        total,
        ..Counted::default()
    }
}

fn failing(class: Class, container: &str) -> Pods {
    let problem = Problem {
        class,
        container: Some(container.into()),
        reason: "x".into(),
    };
    Pods {
        failure: Some((problem, Arc::from("p"))),
        ..Pods::default()
    }
}

/// Condition `ScalingReady`.
#[derive(Clone, Copy)]
enum Scaling {
    Off,
    Begins,
    Works,
    Fails,
}

impl Scaling {
    fn ready(self) -> Option<ScalingReady> {
        let ready = match self {
            Self::Off => return None,
            Self::Begins => None,
            Self::Works => Some(true),
            Self::Fails => Some(false),
        };
        Some(ScalingReady {
            ready,
            reason: Reason::RivalAutoscaler,
            message: String::new(),
            again: None,
        })
    }
}

struct Row {
    refused: bool,
    transport: bool,
    target: Option<Reason>,
    counted: Option<Counted>,
    health: Pods,
    injected: (Option<bool>, Reason),
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
            health: Pods::default(),
            injected: (Some(true), Reason::AllPodsInjected),
            scaling: Scaling::Off,
            desired: Some(2),
            previous: AsyncActorStatus::default(),
            unready_limit: Duration::from_mins(5),
            progress_limit: Duration::from_mins(10),
        }
    }
}

impl Row {
    fn decide(&self) -> BindingVerdict {
        let fault = |reason| Fault::until_change(reason, "");
        let refused = fault(Reason::ValidationError);
        let target = self.target.map(fault);
        let injected = (self.injected.0, self.injected.1, String::new());
        let scaling = self.scaling.ready();
        decide(&BindingStateFacts {
            refused: self.refused.then_some(&refused),
            transport: self.transport.then_some("away"),
            target: target.as_ref(),
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
const CONFLICT: (Option<bool>, Reason) = (Some(false), Reason::SpecConflict);
const BARE: (Option<bool>, Reason) = (Some(false), Reason::PodsNotInjected);

#[expect(clippy::unnecessary_wraps, reason = "rows hold them so")]
fn some(total: i32, ready: i32) -> Option<Counted> {
    Some(pods(total, ready))
}

fn crash() -> Pods {
    failing(Class::SidecarError, "asya-sidecar")
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
                (row.counted, row.health, row.scaling) = (some(2, 0), crash(), Scaling::Fails);
            }),
        ),
        (
            State::Degraded,
            Box::new(|row| (row.counted, row.health) = (some(2, 1), crash())),
        ),
        (
            State::RuntimeError,
            Box::new(|row| {
                (row.counted, row.health) =
                    (some(2, 0), failing(Class::RuntimeError, "asya-runtime"));
            }),
        ),
        (
            State::ScalingUp,
            Box::new(|row| {
                (row.counted, row.health) = (some(2, 0), failing(Class::WorkloadError, "model"));
            }),
        ),
        (
            State::WorkloadError,
            Box::new(|row| {
                (row.counted, row.injected, row.scaling) = (some(2, 0), CONFLICT, Scaling::Fails);
            }),
        ),
        (
            State::Degraded,
            Box::new(|row| (row.counted, row.injected) = (some(2, 1), CONFLICT)),
        ),
        (
            State::ScalingError,
            Box::new(|row| row.scaling = Scaling::Fails),
        ),
        (
            State::Running,
            Box::new(|row| (row.counted, row.desired) = (some(0, 0), Some(0))),
        ),
        (
            State::Napping,
            Box::new(|row| {
                (row.counted, row.desired, row.scaling) = (some(0, 0), Some(0), Scaling::Works);
            }),
        ),
        (State::Running, Box::new(|row| row.scaling = Scaling::Works)),
        (
            State::Running,
            Box::new(|row| row.scaling = Scaling::Begins),
        ),
        (State::ScalingDown, Box::new(|row| row.counted = some(3, 2))),
        (
            State::ScalingUp,
            Box::new(|row| (row.counted, row.injected) = (some(2, 1), BARE)),
        ),
        (State::ScalingUp, Box::new(|row| row.counted = some(0, 0))),
        (State::Running, Box::new(|_| {})),
        (State::Running, Box::new(|row| row.desired = None)),
    ];
    for (at, (state, change)) in rows.into_iter().enumerate() {
        let mut row = Row::default();
        change(&mut row);
        assert_eq!(row.decide().state, state, "row {at}");
    }
}

/// BIND-6
#[test]
fn pods_that_never_become_ready_degrade_the_actor_after_five_minutes() {
    let waits = |since: &str, ready_before| Row {
        counted: Some(pods(2, 1)),
        previous: since_then(since, ready_before),
        ..Row::default()
    };
    let recent = waits("2026-01-01T00:06:00Z", 1).decide();
    assert_eq!(recent.state, State::ScalingUp);
    assert_eq!(recent.again, Some("2026-01-01T00:11:00Z".parse().unwrap()));
    let long = waits("2026-01-01T00:05:00Z", 1).decide();
    let ends = Some("2026-01-01T00:15:00Z".parse().unwrap());
    assert_eq!((long.state, long.again), (State::Degraded, ends), "FW-26");
    let one_more = waits("2026-01-01T00:05:00Z", 0).decide();
    assert_eq!(
        (one_more.state, one_more.progressing_since),
        (State::ScalingUp, Some(now()))
    );
}

/// Status of an actor without progress since `since`.
fn since_then(since: &str, ready: i32) -> AsyncActorStatus {
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
    let rolls = (Some(false), Reason::RolloutInProgress);
    let waits = (Some(false), Reason::RolloutWaiting);
    let well = Row::default().injected;
    let mins = Duration::from_mins;
    for (injected, ready, began, limits, state, stuck) in [
        (
            well,
            1,
            "00:00:00",
            (mins(60), mins(60)),
            State::ScalingUp,
            None,
        ),
        (
            well,
            1,
            "00:00:00",
            (mins(10), mins(10)),
            State::Degraded,
            Some(mins(10)),
        ),
        (
            well,
            0,
            "00:00:00",
            (mins(10), mins(10)),
            State::WorkloadError,
            Some(mins(10)),
        ),
        (
            well,
            1,
            "00:04:00",
            (mins(5), mins(10)),
            State::Degraded,
            None,
        ),
        (
            rolls,
            1,
            "00:01:00",
            (mins(5), mins(10)),
            State::Updating,
            None,
        ),
        (
            rolls,
            1,
            "00:00:00",
            (mins(5), mins(10)),
            State::Degraded,
            Some(mins(10)),
        ),
        (
            waits,
            1,
            "00:00:00",
            (mins(5), mins(10)),
            State::Updating,
            None,
        ),
    ] {
        let verdict = Row {
            counted: Some(pods(2, ready)),
            injected,
            previous: since_then(&format!("2026-01-01T{began}Z"), ready),
            unready_limit: limits.0,
            progress_limit: limits.1,
            ..Row::default()
        }
        .decide();
        let row = format!("{injected:?}, {ready} ready since {began}, {limits:?}");
        assert_eq!((verdict.state, verdict.stuck), (state, stuck), "{row}");
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
        let verdict = Row {
            counted: None,
            previous,
            ..Row::default()
        }
        .decide();
        assert_eq!(verdict.state, state);
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
