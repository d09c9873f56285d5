use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::State;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use serde_json::json;

use super::{LeftAlone, StateFacts, StateVerdict, decide};
use crate::fault::{Fault, Reason};
use crate::pods::refusals::Refusal;
use crate::pods::summary::Pods;
use crate::reconcile::tests::fixtures::{stateful_set, workload};
use crate::record::{Class, HpaRecord, Problem, WorkloadRecord};
use crate::scaling::ready::ScalingReady;
use crate::scaling::tests::fixtures::hpa;

mod refusals;

/// A row of STA-4: the inputs and the expected verdict.
struct Row {
    name: &'static str,
    deleting: bool,
    refused: Option<Fault>,
    transport: Option<Fault>,
    left_alone: Option<LeftAlone>,
    child: Option<Fault>,
    workload: Option<Arc<WorkloadRecord>>,
    refusal: Option<Refusal>,
    pods: Pods,
    scaling: Option<ScalingReady>,
    hpa: Option<Arc<HpaRecord>>,
    previous: Option<State>,
    previously_desired: Option<i32>,
    unready_limit: Option<Duration>,
    progressing_for: i64,
    state: State,
    condition: Option<(Option<bool>, Reason)>,
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn row(name: &'static str) -> Row {
    Row {
        name,
        deleting: false,
        refused: None,
        transport: None,
        left_alone: None,
        child: None,
        workload: None,
        refusal: None,
        pods: Pods::default(),
        scaling: None,
        hpa: None,
        previous: Some(State::Running),
        previously_desired: None,
        unready_limit: Some(Duration::from_mins(5)),
        progressing_for: 0,
        state: State::Running,
        condition: None,
    }
}

/// A row with a workload of `desired` pods that has `total`, of which `updated` have the current template and `ready`
/// are ready.
fn pods(name: &'static str, [desired, total, updated, ready]: [i32; 4]) -> Row {
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"replicas": desired},
        "status": {"observedGeneration": 1, "replicas": total, "readyReplicas": ready, "updatedReplicas": updated},
    });
    let mut row = row(name);
    row.workload = Some(workload(&object));
    row.pods.current_ready = ready.min(updated);
    row
}

/// The same for a `StatefulSet`, which is `rolling` if its revisions differ.
fn of_set(name: &'static str, [desired, total, updated, ready]: [i32; 4], rolling: bool) -> Row {
    let revision = if rolling { "older" } else { "newer" };
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"replicas": desired},
        "status": {"observedGeneration": 1, "replicas": total, "readyReplicas": ready, "updatedReplicas": updated,
            "currentRevision": revision, "updateRevision": "newer"},
    });
    pods(name, [desired, total, updated, ready])
        .with(|row| row.workload = Some(stateful_set(&object)))
}

impl Row {
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Marks the workload as being deleted.
    fn going(self) -> Self {
        self.with(|row| {
            let workload = row.workload.as_mut().map(Arc::make_mut);
            workload.unwrap().metadata.deleting = true;
        })
    }

    fn refused(self, reason: Reason) -> Self {
        self.with(|row| row.refused = Some(Fault::until_change(reason, "text")))
    }

    fn transport(self, reason: Reason) -> Self {
        self.with(|row| row.transport = Some(Fault::until_change(reason, "text")))
    }

    fn child(self, reason: Reason) -> Self {
        self.with(|row| row.child = Some(Fault::until_change(reason, "text")))
    }

    fn failing(self, class: Class) -> Self {
        let problem = Problem {
            class,
            container: Some("c".into()),
            reason: "Why".into(),
        };
        self.with(|row| row.pods.failure = Some((problem, "pod-1".into())))
    }

    /// Turns scaling on, with this state of condition `ScalingReady`.
    fn scaled(self, ready: Option<bool>) -> Self {
        self.with(|row| {
            row.scaling = Some(ScalingReady {
                ready,
                reason: Reason::ScaledObjectReady,
                message: String::new(),
                again: None,
            });
        })
    }

    fn hpa(self, desired: i32) -> Self {
        self.with(|row| row.hpa = Some(hpa(&json!({"status": {"desiredReplicas": desired}}))))
    }

    fn existing(self, pods: i32) -> Self {
        self.with(|row| row.pods.existing = pods)
    }

    fn old(self, pods: i32) -> Self {
        self.with(|row| row.pods.old = pods)
    }

    fn leaving(self, pods: i32) -> Self {
        self.with(|row| row.pods.leaving = pods)
    }

    fn was(self, state: Option<State>, desired: i32) -> Self {
        self.with(|row| (row.previous, row.previously_desired) = (state, Some(desired)))
    }

    fn unready_for(self, seconds: i64) -> Self {
        self.with(|row| row.pods.unready_since = Some(ago(seconds)))
    }

    fn progressing_for(self, seconds: i64) -> Self {
        self.with(|row| row.progressing_for = seconds)
    }

    fn is(self, state: State, ready: Option<bool>, reason: Reason) -> Self {
        self.with(|row| (row.state, row.condition) = (state, Some((ready, reason))))
    }

    fn decide(&self) -> StateVerdict {
        decide(&StateFacts {
            deleting: self.deleting,
            refused: self.refused.as_ref(),
            transport: self.transport.as_ref().map(|fault| &*fault.message),
            left_alone: self.left_alone,
            child: self.child.as_ref(),
            workload: self.workload.as_deref(),
            refusal: self.refusal.as_ref(),
            pods: &self.pods,
            scaling: self.scaling.as_ref(),
            hpa: self.hpa.as_deref(),
            previous: self.previous,
            previously_desired: self.previously_desired,
            unready_limit: self.unready_limit,
            progressing_since: ago(self.progressing_for),
            progress_limit: Some(Duration::from_mins(10)),
            now: now(),
        })
    }
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

/// STA-4, STA-5
#[test]
fn first_matching_row_decides() {
    for row in without_workload()
        .into_iter()
        .chain(failures())
        .chain(changes())
        .chain(scaled())
    {
        let verdict = row.decide();
        assert_eq!(verdict.state, row.state, "{}", row.name);
        let condition = verdict.workload.map(|ready| (ready.ready, ready.reason));
        assert_eq!(condition, row.condition, "{}", row.name);
    }
}

/// Rows 1 to 4.
fn without_workload() -> Vec<Row> {
    use Reason as R;
    use State as S;
    let [well, crash] = [[1, 1, 1, 1], [1, 1, 1, 0]];
    vec![
        pods("deletion", well).with(|row| (row.deleting, row.state) = (true, S::Terminating)),
        pods("invalid spec", well).refused(R::ValidationError).is(
            S::WorkloadError,
            NO,
            R::ValidationError,
        ),
        row("both wrong")
            .refused(R::ValidationError)
            .transport(R::BrokerUnreachable)
            .is(S::WorkloadError, NO, R::ValidationError),
        row("no queue").transport(R::BrokerUnreachable).is(
            S::TransportError,
            None,
            R::TransportNotReady,
        ),
        pods("queue lost, work goes on", well)
            .transport(R::QueueMissing)
            .is(S::TransportError, YES, R::PodsReady),
        pods("all lost", crash)
            .failing(Class::RuntimeError)
            .transport(R::QueueMissing)
            .is(S::TransportError, NO, R::RuntimeError),
        row("paused before there was a workload")
            .with(|row| row.left_alone = Some(LeftAlone::Paused))
            .is(S::Creating, NO, R::Paused),
        row("gone, and made only once")
            .with(|row| row.left_alone = Some(LeftAlone::Done))
            .is(S::WorkloadError, NO, R::WorkloadMissing),
        row("refused")
            .child(R::ReconcileError)
            .is(S::WorkloadError, NO, R::ReconcileError),
        row("somebody else's")
            .child(R::NotOwned)
            .is(S::WorkloadError, NO, R::NotOwned),
    ]
}

/// Rows 5, 6 and 9.
fn failures() -> Vec<Row> {
    use Reason as R;
    use State as S;
    let none = [1, 1, 1, 0];
    vec![
        pods("config", none)
            .failing(Class::ConfigError)
            .is(S::ConfigError, NO, R::ConfigError),
        pods("volume", none)
            .failing(Class::VolumeError)
            .is(S::VolumeError, NO, R::VolumeError),
        pods("image", none).failing(Class::ImagePullError).is(
            S::ImagePullError,
            NO,
            R::ImagePullError,
        ),
        pods("runtime", none)
            .failing(Class::RuntimeError)
            .is(S::RuntimeError, NO, R::RuntimeError),
        pods("sidecar", none)
            .failing(Class::SidecarError)
            .is(S::SidecarError, NO, R::SidecarError),
        pods("helper", none).failing(Class::WorkloadError).is(
            S::WorkloadError,
            NO,
            R::WorkloadError,
        ),
        pods("new ones fail, old ones work", [2, 3, 1, 2])
            .old(2)
            .failing(Class::ImagePullError)
            .with(|row| row.pods.current_ready = 0)
            .is(S::ImagePullError, NO, R::ImagePullError),
        pods("no room", [2, 2, 2, 1])
            .failing(Class::PendingResources)
            .is(S::PendingResources, NO, R::PendingResources),
        pods("some fail", [3, 3, 3, 2])
            .failing(Class::RuntimeError)
            .is(S::Degraded, NO, R::RuntimeError),
    ]
}

/// Rows 10 to 14.
fn changes() -> Vec<Row> {
    use Reason as R;
    use State as S;
    let (one, two, three) = ([1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 1]);
    vec![
        pods("old ones work still", two)
            .old(1)
            .is(S::Updating, YES, R::RollingOut),
        pods("counts show old ones", [2, 3, 1, 2]).is(S::Updating, YES, R::RollingOut),
        pods("no new one is counted yet", [1, 1, 0, 1]).is(S::Updating, YES, R::RollingOut),
        pods("it goes, its pods work", two)
            .going()
            .is(S::Updating, YES, R::RollingOut),
        pods("it goes with its pods", [1, 1, 1, 0])
            .going()
            .is(S::Updating, NO, R::Progressing),
        of_set("the only pod stops for its successor", [1, 1, 0, 0], true)
            .leaving(1)
            .is(S::Updating, NO, R::Progressing),
        of_set("its successor starts", [1, 1, 1, 0], true).is(S::Updating, NO, R::Progressing),
        of_set("one of two is replaced", [2, 2, 1, 1], true).is(S::Updating, YES, R::RollingOut),
        of_set("somebody deleted the only pod", [1, 1, 0, 0], false)
            .leaving(1)
            .is(S::ScalingUp, NO, R::Progressing),
        of_set("fewer are wished, two go", [1, 3, 1, 3], false)
            .leaving(2)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("rolled out, not ready", [2, 2, 2, 0])
            .was(Some(S::Updating), 2)
            .is(S::Updating, NO, R::Progressing),
        pods("more than wished", [1, 3, 3, 3]).is(S::ScalingDown, YES, R::PodsReady),
        pods("last ones leave", one)
            .leaving(2)
            .was(Some(S::Running), 3)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("still leaving", one)
            .leaving(2)
            .was(Some(S::ScalingDown), 1)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("one replaced", one)
            .leaving(1)
            .was(Some(S::Running), 1)
            .is(S::Running, YES, R::PodsReady),
        pods("unready for long", [1, 1, 1, 0]).unready_for(300).is(
            S::WorkloadError,
            NO,
            R::PodsNotReady,
        ),
        pods("one of two is", [2, 2, 2, 1])
            .unready_for(301)
            .is(S::Degraded, NO, R::PodsNotReady),
        pods("not for long", [1, 1, 1, 0])
            .unready_for(299)
            .is(S::ScalingUp, NO, R::Progressing),
        pods("long, and slow ones are wished", [1, 1, 1, 0])
            .unready_for(301)
            .with(|row| row.unready_limit = Some(Duration::from_mins(6)))
            .is(S::ScalingUp, NO, R::Progressing),
        pods("long, and never too long", [1, 1, 1, 0])
            .unready_for(9999)
            .with(|row| row.unready_limit = None)
            .is(S::ScalingUp, NO, R::Progressing),
        pods("none for too long", [1, 1, 1, 0])
            .progressing_for(600)
            .is(S::WorkloadError, NO, R::ProgressDeadlineExceeded),
        pods("one, then none", [2, 2, 2, 1])
            .progressing_for(601)
            .is(S::Degraded, NO, R::ProgressDeadlineExceeded),
        pods("rollout stuck", two).old(1).progressing_for(600).is(
            S::Degraded,
            NO,
            R::ProgressDeadlineExceeded,
        ),
        pods("at rest for long", two)
            .progressing_for(9999)
            .is(S::Running, YES, R::PodsReady),
        pods("first ones start", [2, 2, 2, 0])
            .was(None, 2)
            .is(S::Creating, NO, R::Progressing),
        pods("and go on", [2, 2, 2, 1])
            .was(Some(S::Creating), 2)
            .is(S::Creating, YES, R::Scaling),
        pods("more start", three).is(S::ScalingUp, YES, R::Scaling),
        row("not there yet").is(S::Creating, NO, R::Progressing),
        pods("all is well", two).is(S::Running, YES, R::PodsReady),
        pods("zero by hand", [0, 0, 0, 0]).is(S::Running, YES, R::ScaledToZero),
    ]
}

/// Rows of an actor that its queue scales.
fn scaled() -> Vec<Row> {
    use Reason as R;
    use State as S;
    let two = [2, 2, 2, 2];
    vec![
        pods(
            "old pods work, and there is no place for a new one",
            [2, 3, 1, 2],
        )
        .with(|row| row.pods.current_ready = 0)
        .old(2)
        .failing(Class::PendingResources)
        .is(S::PendingResources, NO, R::PendingResources),
        pods("asleep", [0, 0, 0, 0])
            .scaled(YES)
            .is(S::Napping, YES, R::ScaledToZero),
        pods("falls asleep, its last pod still goes", [0, 0, 0, 0])
            .scaled(YES)
            .existing(1)
            .leaving(1)
            .was(Some(S::Running), 1)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("wakes", [1, 1, 1, 0])
            .scaled(YES)
            .was(Some(S::Napping), 0)
            .is(S::ScalingUp, NO, R::Progressing),
        pods("asleep, and cannot wake", [0, 0, 0, 0]).scaled(NO).is(
            S::ScalingError,
            YES,
            R::ScaledToZero,
        ),
        pods("works, and cannot be scaled", two)
            .scaled(NO)
            .is(S::ScalingError, YES, R::PodsReady),
        pods("no pod works, which is worse", [2, 2, 2, 0])
            .scaled(NO)
            .failing(Class::ImagePullError)
            .is(S::ImagePullError, NO, R::ImagePullError),
        pods("no place for pods, which is worse", [2, 2, 2, 1])
            .scaled(NO)
            .failing(Class::PendingResources)
            .is(S::PendingResources, NO, R::PendingResources),
        pods("one of two fails, which is less", [2, 2, 2, 1])
            .scaled(NO)
            .failing(Class::ImagePullError)
            .is(S::ScalingError, NO, R::ImagePullError),
        pods("KEDA has not said", two)
            .scaled(None)
            .is(S::Running, YES, R::PodsReady),
        pods("the HPA asks for more than the workload was told", two)
            .scaled(YES)
            .hpa(3)
            .is(S::ScalingUp, YES, R::Scaling),
    ]
}

/// STA-3
#[test]
fn message_of_a_failure_names_container_reason_and_pod() {
    let verdict = pods("", [1, 1, 1, 0])
        .failing(Class::ImagePullError)
        .decide();
    assert_eq!(
        verdict.workload.unwrap().message,
        "Container c: Why (pod pod-1)"
    );
}

/// STA-6
#[test]
fn next_check_is_exactly_when_an_unready_pod_exceeds_its_limit() {
    let verdict = pods("", [1, 1, 1, 0]).unready_for(299).decide();
    assert_eq!(verdict.again, Some(now() + SignedDuration::from_secs(1)));
    let verdict = pods("", [2, 2, 2, 1]).progressing_for(590).decide();
    assert_eq!(verdict.again, Some(now() + SignedDuration::from_secs(10)));
    assert_eq!(pods("", [1, 1, 1, 1]).decide().again, None);
}

/// WRK-5
#[test]
fn counts_of_an_older_generation_are_not_a_rollout() {
    let mut row = pods("", [3, 3, 1, 1]);
    if let Some(workload) = &mut row.workload {
        Arc::make_mut(workload).generation = 2;
    }
    assert_eq!(row.decide().state, State::ScalingUp);
}
