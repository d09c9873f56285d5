use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::State;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use serde_json::json;

use super::{SkipReason, StateDecision, StateInputs, decide};
use crate::condition::{ConditionStatus, ConditionValue};
use crate::fault::{Fault, Reason};
use crate::pods::creation_failures::PodCreationFailure;
use crate::pods::summary::{FailedPod, PodSummary};
use crate::reconcile::tests::fixtures::{stateful_set, workload};
use crate::record::{HpaRecord, Problem, ProblemClass, WorkloadRecord};
use crate::scaling::ready::ScalingReady;
use crate::scaling::tests::fixtures::hpa;

mod details;
mod rejections;

/// A row of STA-4: the inputs and the expected decision.
struct Row {
    name: &'static str,
    deleting: bool,
    refused: Option<Fault>,
    transport: Option<Fault>,
    left_alone: Option<SkipReason>,
    child: Option<Fault>,
    workload: Option<Arc<WorkloadRecord>>,
    refusal: Option<PodCreationFailure>,
    pods: PodSummary,
    scaling: Option<ScalingReady>,
    hpa: Option<Arc<HpaRecord>>,
    previous: Option<State>,
    previously_desired: Option<i32>,
    unready_limit: Option<Duration>,
    progressing_for: i64,
    state: State,
    condition: Option<(ConditionStatus, Reason)>,
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
        pods: PodSummary::default(),
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
fn stateful_set_pods(
    name: &'static str,
    [desired, total, updated, ready]: [i32; 4],
    rolling: bool,
) -> Row {
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
    fn terminating(self) -> Self {
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

    fn failing(self, class: ProblemClass) -> Self {
        let problem = Problem {
            class,
            container: Some("c".into()),
            reason: "Why".into(),
        };
        let pod = "pod-1".into();
        self.with(|row| row.pods.failure = Some(FailedPod { problem, pod }))
    }

    /// Turns scaling on, with this state of condition `ScalingReady`.
    fn scaled(self, status: ConditionStatus) -> Self {
        let condition = ConditionValue::new(status, Reason::ScaledObjectReady, "");
        self.with(|row| row.scaling = Some(condition.into()))
    }

    fn hpa(self, desired: i32) -> Self {
        self.with(|row| row.hpa = Some(hpa(&json!({"status": {"desiredReplicas": desired}}))))
    }

    fn existing(self, pods: i32) -> Self {
        self.with(|row| row.pods.existing = pods)
    }

    fn old(self, pods: i32) -> Self {
        self.with(|row| row.pods.outdated = pods)
    }

    fn terminating_pods(self, pods: i32) -> Self {
        self.with(|row| row.pods.terminating = pods)
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

    fn is(self, state: State, ready: ConditionStatus, reason: Reason) -> Self {
        self.with(|row| (row.state, row.condition) = (state, Some((ready, reason))))
    }

    fn decide(&self) -> StateDecision {
        decide(&StateInputs {
            deleting: self.deleting,
            spec_fault: self.refused.as_ref(),
            transport_fault: self.transport.as_ref().map(|fault| &*fault.message),
            skip_reason: self.left_alone,
            workload_fault: self.child.as_ref(),
            workload: self.workload.as_deref(),
            creation_failure: self.refusal.as_ref(),
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

const YES: ConditionStatus = ConditionStatus::True;
const NO: ConditionStatus = ConditionStatus::False;
const UNKNOWN: ConditionStatus = ConditionStatus::Unknown;

/// STA-4, STA-5
#[test]
fn first_matching_row_decides() {
    for row in without_workload()
        .into_iter()
        .chain(failures())
        .chain(changes())
        .chain(scaled())
    {
        let decision = row.decide();
        assert_eq!(decision.state, row.state, "{}", row.name);
        let condition = decision.workload.map(|it| (it.status, it.reason));
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
        row("invalid spec and no queue")
            .refused(R::ValidationError)
            .transport(R::BrokerUnreachable)
            .is(S::WorkloadError, NO, R::ValidationError),
        row("no queue").transport(R::BrokerUnreachable).is(
            S::TransportError,
            UNKNOWN,
            R::TransportNotReady,
        ),
        pods("queue lost, pods still ready", well)
            .transport(R::QueueMissing)
            .is(S::TransportError, YES, R::PodsReady),
        pods("queue lost, pods failing", crash)
            .failing(ProblemClass::RuntimeError)
            .transport(R::QueueMissing)
            .is(S::TransportError, NO, R::RuntimeError),
        row("paused without a workload")
            .with(|row| row.left_alone = Some(SkipReason::Paused))
            .is(S::Creating, NO, R::Paused),
        row("workload deleted after Once completed")
            .with(|row| row.left_alone = Some(SkipReason::ReconcileOnceDone))
            .is(S::WorkloadError, NO, R::WorkloadMissing),
        row("workload rejected").child(R::ReconcileError).is(
            S::WorkloadError,
            NO,
            R::ReconcileError,
        ),
        row("owned by another controller")
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
        pods("config error", none)
            .failing(ProblemClass::ConfigError)
            .is(S::ConfigError, NO, R::ConfigError),
        pods("volume error", none)
            .failing(ProblemClass::VolumeError)
            .is(S::VolumeError, NO, R::VolumeError),
        pods("image pull error", none)
            .failing(ProblemClass::ImagePullError)
            .is(S::ImagePullError, NO, R::ImagePullError),
        pods("runtime error", none)
            .failing(ProblemClass::RuntimeError)
            .is(S::RuntimeError, NO, R::RuntimeError),
        pods("sidecar error", none)
            .failing(ProblemClass::SidecarError)
            .is(S::SidecarError, NO, R::SidecarError),
        pods("other container fails", none)
            .failing(ProblemClass::WorkloadError)
            .is(S::WorkloadError, NO, R::WorkloadError),
        pods("new pods fail, old pods are ready", [2, 3, 1, 2])
            .old(2)
            .failing(ProblemClass::ImagePullError)
            .with(|row| row.pods.current_ready = 0)
            .is(S::ImagePullError, NO, R::ImagePullError),
        pods("one pod is unschedulable", [2, 2, 2, 1])
            .failing(ProblemClass::PendingResources)
            .is(S::PendingResources, NO, R::PendingResources),
        pods("one of three pods fails", [3, 3, 3, 2])
            .failing(ProblemClass::RuntimeError)
            .is(S::Degraded, NO, R::RuntimeError),
    ]
}

/// Rows 10 to 14.
fn changes() -> Vec<Row> {
    use Reason as R;
    use State as S;
    let one = [1, 1, 1, 1];
    let two = [2, 2, 2, 2];
    let three = [3, 3, 3, 1];
    vec![
        pods("pods of the old template remain", two)
            .old(1)
            .is(S::Updating, YES, R::RollingOut),
        pods("counts include old pods", [2, 3, 1, 2]).is(S::Updating, YES, R::RollingOut),
        pods("no updated pod counted yet", [1, 1, 0, 1]).is(S::Updating, YES, R::RollingOut),
        pods("workload is being deleted, pods ready", two)
            .terminating()
            .is(S::Updating, YES, R::RollingOut),
        pods("workload is being deleted, pods not ready", [1, 1, 1, 0])
            .terminating()
            .is(S::Updating, NO, R::Progressing),
        stateful_set_pods(
            "the only pod terminates for its replacement",
            [1, 1, 0, 0],
            true,
        )
        .terminating_pods(1)
        .is(S::Updating, NO, R::Progressing),
        stateful_set_pods("replacement starts", [1, 1, 1, 0], true).is(
            S::Updating,
            NO,
            R::Progressing,
        ),
        stateful_set_pods("one of two is replaced", [2, 2, 1, 1], true).is(
            S::Updating,
            YES,
            R::RollingOut,
        ),
        stateful_set_pods("the only pod was deleted by a user", [1, 1, 0, 0], false)
            .terminating_pods(1)
            .is(S::ScalingUp, NO, R::Progressing),
        stateful_set_pods("scaled down, two pods terminating", [1, 3, 1, 3], false)
            .terminating_pods(2)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("rolled out, not ready", [2, 2, 2, 0])
            .was(Some(S::Updating), 2)
            .is(S::Updating, NO, R::Progressing),
        pods("more pods than desired", [1, 3, 3, 3]).is(S::ScalingDown, YES, R::PodsReady),
        pods("excess pods terminating", one)
            .terminating_pods(2)
            .was(Some(S::Running), 3)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("still terminating", one)
            .terminating_pods(2)
            .was(Some(S::ScalingDown), 1)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("one pod replaced", one)
            .terminating_pods(1)
            .was(Some(S::Running), 1)
            .is(S::Running, YES, R::PodsReady),
        pods("unready for the limit", [1, 1, 1, 0])
            .unready_for(300)
            .is(S::WorkloadError, NO, R::PodsNotReady),
        pods("one of two unready beyond the limit", [2, 2, 2, 1])
            .unready_for(301)
            .is(S::Degraded, NO, R::PodsNotReady),
        pods("unready within the limit", [1, 1, 1, 0])
            .unready_for(299)
            .is(S::ScalingUp, NO, R::Progressing),
        pods("unready within a higher limit", [1, 1, 1, 0])
            .unready_for(301)
            .with(|row| row.unready_limit = Some(Duration::from_mins(6)))
            .is(S::ScalingUp, NO, R::Progressing),
        pods("unready without a limit", [1, 1, 1, 0])
            .unready_for(9999)
            .with(|row| row.unready_limit = None)
            .is(S::ScalingUp, NO, R::Progressing),
        pods("no pod ready by the progress deadline", [1, 1, 1, 0])
            .progressing_for(600)
            .is(S::WorkloadError, NO, R::ProgressDeadlineExceeded),
        pods("one pod ready, no progress by the deadline", [2, 2, 2, 1])
            .progressing_for(601)
            .is(S::Degraded, NO, R::ProgressDeadlineExceeded),
        pods("rollout stuck", two).old(1).progressing_for(600).is(
            S::Degraded,
            NO,
            R::ProgressDeadlineExceeded,
        ),
        pods("no change in progress", two)
            .progressing_for(9999)
            .is(S::Running, YES, R::PodsReady),
        pods("first pods start", [2, 2, 2, 0])
            .was(None, 2)
            .is(S::Creating, NO, R::Progressing),
        pods("first pods still starting", [2, 2, 2, 1])
            .was(Some(S::Creating), 2)
            .is(S::Creating, YES, R::Scaling),
        pods("more pods start", three).is(S::ScalingUp, YES, R::Scaling),
        row("no workload yet").is(S::Creating, NO, R::Progressing),
        pods("all pods ready", two).is(S::Running, YES, R::PodsReady),
        pods("scaled to zero manually", [0, 0, 0, 0]).is(S::Running, YES, R::ScaledToZero),
    ]
}

/// Rows of an actor that its queue scales.
/// STA-4: a pause of KEDA is no fault, but nobody must believe that messages start pods.
#[test]
fn napping_actor_says_whether_messages_start_pods() {
    let napping = |starts_pods| {
        let mut row = pods("scaled to zero", [0, 0, 0, 0]).scaled(YES);
        if let Some(scaling) = &mut row.scaling {
            scaling.starts_pods = starts_pods;
        }
        let decision = row.decide();
        (decision.state, decision.workload.unwrap().message)
    };
    let (state, text) = napping(true);
    assert_eq!(state, State::Napping);
    assert!(text.ends_with("messages in the queue start pods"), "{text}");
    let (state, text) = napping(false);
    assert_eq!(state, State::Napping);
    assert!(text.contains("no message starts a pod"), "{text}");
}

fn scaled() -> Vec<Row> {
    use Reason as R;
    use State as S;
    let two = [2, 2, 2, 2];
    vec![
        pods(
            "old pods are ready, the new one is unschedulable",
            [2, 3, 1, 2],
        )
        .with(|row| row.pods.current_ready = 0)
        .old(2)
        .failing(ProblemClass::PendingResources)
        .is(S::PendingResources, NO, R::PendingResources),
        pods("scaled to zero", [0, 0, 0, 0])
            .scaled(YES)
            .is(S::Napping, YES, R::ScaledToZero),
        pods("scaling to zero, last pod terminating", [0, 0, 0, 0])
            .scaled(YES)
            .existing(1)
            .terminating_pods(1)
            .was(Some(S::Running), 1)
            .is(S::ScalingDown, YES, R::PodsReady),
        pods("scaling up from zero", [1, 1, 1, 0])
            .scaled(YES)
            .was(Some(S::Napping), 0)
            .is(S::ScalingUp, NO, R::Progressing),
        pods("scaled to zero, scaling fails", [0, 0, 0, 0])
            .scaled(NO)
            .is(S::ScalingError, YES, R::ScaledToZero),
        pods("pods ready, scaling fails", two)
            .scaled(NO)
            .is(S::ScalingError, YES, R::PodsReady),
        pods(
            "failing pods take precedence over failing scaling",
            [2, 2, 2, 0],
        )
        .scaled(NO)
        .failing(ProblemClass::ImagePullError)
        .is(S::ImagePullError, NO, R::ImagePullError),
        pods(
            "unschedulable pods take precedence over failing scaling",
            [2, 2, 2, 1],
        )
        .scaled(NO)
        .failing(ProblemClass::PendingResources)
        .is(S::PendingResources, NO, R::PendingResources),
        pods(
            "failing scaling takes precedence over one failing pod",
            [2, 2, 2, 1],
        )
        .scaled(NO)
        .failing(ProblemClass::ImagePullError)
        .is(S::ScalingError, NO, R::ImagePullError),
        pods("KEDA has not reported yet", two)
            .scaled(UNKNOWN)
            .is(S::Running, YES, R::PodsReady),
        pods("the HPA desires more than the workload's replicas", two)
            .scaled(YES)
            .hpa(3)
            .is(S::ScalingUp, YES, R::Scaling),
    ]
}
