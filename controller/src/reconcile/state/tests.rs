use std::sync::Arc;

use asya_shared::api::State;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Facts, Verdict, decide};
use crate::reconcile::pods::Pods;
use crate::reconcile::{Fault, Reason};
use crate::record::{Class, Problem, WorkloadRecord};

/// A row of STA-4: what is so, and what must follow.
struct Row {
    name: &'static str,
    deleting: bool,
    refused: Option<Fault>,
    transport: Option<Fault>,
    child: Option<Fault>,
    workload: Option<WorkloadRecord>,
    pods: Pods,
    previous: Option<State>,
    previously_desired: Option<i32>,
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

fn row(name: &'static str) -> Row {
    Row {
        name,
        deleting: false,
        refused: None,
        transport: None,
        child: None,
        workload: None,
        pods: Pods::default(),
        previous: Some(State::Running),
        previously_desired: None,
    }
}

impl Row {
    /// A workload that asks for `desired` pods, has `total` of which `updated` are of the current
    /// template, and `ready` that take work.
    fn workload(mut self, desired: i32, total: i32, updated: i32, ready: i32) -> Self {
        let object = serde_json::json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {"replicas": desired},
            "status": {"observedGeneration": 1, "replicas": total, "readyReplicas": ready, "updatedReplicas": updated},
        });
        self.workload = Some(record(&object));
        self.pods.current_ready = ready.min(updated);
        self
    }

    fn failing(mut self, class: Class) -> Self {
        let problem = Problem {
            class,
            container: Some("c".into()),
            reason: "Why".into(),
        };
        self.pods.failure = Some((problem, "pod-1".into()));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn decide(&self) -> Verdict {
        decide(&Facts {
            deleting: self.deleting,
            refused: self.refused.as_ref(),
            transport: self.transport.as_ref(),
            child: self.child.as_ref(),
            workload: self.workload.as_ref(),
            pods: &self.pods,
            previous: self.previous,
            previously_desired: self.previously_desired,
            now: now(),
        })
    }
}

fn record(object: &serde_json::Value) -> WorkloadRecord {
    let seen: crate::record::Seen<WorkloadRecord> =
        serde_json::from_str(&object.to_string()).unwrap();
    Arc::into_inner(seen.record).unwrap()
}

fn fault(reason: Reason) -> Option<Fault> {
    Some(Fault::until_change(reason, "text"))
}

const TRUE: Option<bool> = Some(true);
const FALSE: Option<bool> = Some(false);

/// STA-4, STA-5
#[test]
fn first_row_of_the_table_that_matches_decides() {
    use Reason as R;
    use State as S;
    let rows: Vec<(Row, State, Option<(Option<bool>, Reason)>)> = vec![
        // 1
        (
            row("deletion goes before all else")
                .workload(1, 1, 1, 1)
                .with(|r| r.deleting = true),
            S::Terminating,
            None,
        ),
        // 2
        (
            row("invalid spec")
                .workload(1, 1, 1, 1)
                .with(|r| r.refused = fault(R::ValidationError)),
            S::WorkloadError,
            Some((FALSE, R::ValidationError)),
        ),
        (
            row("invalid spec goes before the transport").with(|r| {
                r.refused = fault(R::ValidationError);
                r.transport = fault(R::BrokerUnreachable);
            }),
            S::WorkloadError,
            Some((FALSE, R::ValidationError)),
        ),
        // 3
        (
            row("no queue, no workload").with(|r| r.transport = fault(R::BrokerUnreachable)),
            S::TransportError,
            Some((None, R::TransportNotReady)),
        ),
        (
            row("no queue, a workload that goes on")
                .workload(1, 1, 1, 1)
                .with(|r| r.transport = fault(R::QueueMissing)),
            S::TransportError,
            Some((TRUE, R::PodsReady)),
        ),
        (
            row("no queue, a workload that fails")
                .workload(1, 1, 1, 0)
                .failing(Class::RuntimeError)
                .with(|r| r.transport = fault(R::QueueMissing)),
            S::TransportError,
            Some((FALSE, R::RuntimeError)),
        ),
        // 4
        (
            row("child refused").with(|r| r.child = fault(R::ReconcileError)),
            S::WorkloadError,
            Some((FALSE, R::ReconcileError)),
        ),
        (
            row("child is somebody else's").with(|r| r.child = fault(R::NotOwned)),
            S::WorkloadError,
            Some((FALSE, R::NotOwned)),
        ),
        // 5
        (
            row("config")
                .workload(1, 1, 1, 0)
                .failing(Class::ConfigError),
            S::ConfigError,
            Some((FALSE, R::ConfigError)),
        ),
        (
            row("volume")
                .workload(1, 1, 1, 0)
                .failing(Class::VolumeError),
            S::VolumeError,
            Some((FALSE, R::VolumeError)),
        ),
        (
            row("image")
                .workload(1, 1, 1, 0)
                .failing(Class::ImagePullError),
            S::ImagePullError,
            Some((FALSE, R::ImagePullError)),
        ),
        (
            row("runtime")
                .workload(1, 1, 1, 0)
                .failing(Class::RuntimeError),
            S::RuntimeError,
            Some((FALSE, R::RuntimeError)),
        ),
        (
            row("sidecar")
                .workload(1, 1, 1, 0)
                .failing(Class::SidecarError),
            S::SidecarError,
            Some((FALSE, R::SidecarError)),
        ),
        (
            row("another container")
                .workload(1, 1, 1, 0)
                .failing(Class::WorkloadError),
            S::WorkloadError,
            Some((FALSE, R::WorkloadError)),
        ),
        (
            row("new pods fail while old ones work")
                .workload(2, 3, 1, 2)
                .with(|r| r.pods.old = 2)
                .failing(Class::ImagePullError)
                .with(|r| r.pods.current_ready = 0),
            S::ImagePullError,
            Some((FALSE, R::ImagePullError)),
        ),
        // 6
        (
            row("no room")
                .workload(2, 2, 2, 1)
                .failing(Class::PendingResources),
            S::PendingResources,
            Some((FALSE, R::PendingResources)),
        ),
        // 9
        (
            row("some fail")
                .workload(3, 3, 3, 2)
                .failing(Class::RuntimeError),
            S::Degraded,
            Some((FALSE, R::RuntimeError)),
        ),
        // 10
        (
            row("older pods work still")
                .workload(2, 2, 2, 2)
                .with(|r| r.pods.old = 1),
            S::Updating,
            Some((TRUE, R::RollingOut)),
        ),
        (
            row("counts show older pods").workload(2, 3, 1, 2),
            S::Updating,
            Some((TRUE, R::RollingOut)),
        ),
        (
            row("rolled out, not ready yet")
                .workload(2, 2, 2, 0)
                .with(|r| r.previous = Some(S::Updating)),
            S::Updating,
            Some((FALSE, R::Progressing)),
        ),
        // 11
        (
            row("more than wished").workload(1, 3, 3, 3),
            S::ScalingDown,
            Some((TRUE, R::PodsReady)),
        ),
        (
            row("last ones on their way out")
                .workload(1, 1, 1, 1)
                .with(|r| {
                    r.pods.leaving = 2;
                    r.previously_desired = Some(3);
                }),
            S::ScalingDown,
            Some((TRUE, R::PodsReady)),
        ),
        (
            row("still on their way out")
                .workload(1, 1, 1, 1)
                .with(|r| {
                    r.pods.leaving = 2;
                    r.previous = Some(S::ScalingDown);
                }),
            S::ScalingDown,
            Some((TRUE, R::PodsReady)),
        ),
        (
            row("one replaced").workload(1, 1, 1, 1).with(|r| {
                r.pods.leaving = 1;
                r.previously_desired = Some(1);
            }),
            S::Running,
            Some((TRUE, R::PodsReady)),
        ),
        // 12
        (
            row("unready for long, none ready")
                .workload(1, 1, 1, 0)
                .with(|r| r.pods.unready_since = Some(ago(300))),
            S::WorkloadError,
            Some((FALSE, R::PodsNotReady)),
        ),
        (
            row("unready for long, one ready")
                .workload(2, 2, 2, 1)
                .with(|r| r.pods.unready_since = Some(ago(301))),
            S::Degraded,
            Some((FALSE, R::PodsNotReady)),
        ),
        // 13
        (
            row("first pods start")
                .workload(2, 2, 2, 0)
                .with(|r| r.previous = None),
            S::Creating,
            Some((FALSE, R::Progressing)),
        ),
        (
            row("first pods start still")
                .workload(2, 2, 2, 1)
                .with(|r| r.previous = Some(S::Creating)),
            S::Creating,
            Some((TRUE, R::Scaling)),
        ),
        (
            row("more pods start").workload(3, 3, 3, 1),
            S::ScalingUp,
            Some((TRUE, R::Scaling)),
        ),
        (
            row("unready, not for long")
                .workload(1, 1, 1, 0)
                .with(|r| r.pods.unready_since = Some(ago(299))),
            S::ScalingUp,
            Some((FALSE, R::Progressing)),
        ),
        (
            row("not there yet").with(|r| r.previous = None),
            S::Creating,
            Some((FALSE, R::Progressing)),
        ),
        // 14
        (
            row("all is well").workload(2, 2, 2, 2),
            S::Running,
            Some((TRUE, R::PodsReady)),
        ),
        (
            row("zero by hand").workload(0, 0, 0, 0),
            S::Running,
            Some((TRUE, R::ScaledToZero)),
        ),
    ];
    for (row, state, condition) in &rows {
        let verdict = row.decide();
        assert_eq!(verdict.state, *state, "{}", row.name);
        assert_eq!(
            verdict.workload.map(|ready| (ready.ready, ready.reason)),
            *condition,
            "{}",
            row.name
        );
    }
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// STA-3
#[test]
fn message_of_a_failure_names_container_reason_and_pod() {
    let verdict = row("")
        .workload(1, 1, 1, 0)
        .failing(Class::ImagePullError)
        .decide();
    assert_eq!(
        verdict.workload.unwrap().message,
        "Container c: Why (pod pod-1)"
    );
}

/// STA-6
#[test]
fn next_look_is_exactly_when_an_unready_pod_begins_to_count() {
    let verdict = row("")
        .workload(1, 1, 1, 0)
        .with(|r| r.pods.unready_since = Some(ago(299)))
        .decide();
    assert_eq!(verdict.again, Some(now() + SignedDuration::from_secs(1)));
    assert_eq!(row("").workload(1, 1, 1, 1).decide().again, None);
}

/// STA-2
#[test]
fn quota_that_refuses_pods_is_a_lack_of_resources_and_any_other_refusal_an_error() {
    let refused = |message: &str| {
        let mut row = row("").workload(1, 0, 0, 0);
        row.workload = Some(record(&serde_json::json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {"replicas": 1},
            "status": {"observedGeneration": 1, "conditions": [
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message},
            ]},
        })));
        row.decide().state
    };
    assert_eq!(
        refused("pods \"x\" is forbidden: exceeded quota: q"),
        State::PendingResources
    );
    assert_eq!(
        refused("pods \"x\" is forbidden: violates PodSecurity"),
        State::WorkloadError
    );
}

/// WRK-5
#[test]
fn counts_of_an_older_generation_show_no_rollout() {
    let mut row = row("").workload(3, 3, 1, 1);
    if let Some(workload) = &mut row.workload {
        workload.generation = 2;
    }
    assert_eq!(row.decide().state, State::ScalingUp);
}
