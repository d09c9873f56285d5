use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::PodSummary;
use crate::reconcile::tests::fixtures::record;
use crate::record::{PodRecord, ProblemClass};

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// A pod of the current template, with this metadata and status.
fn pod(name: &str, metadata: &Value, status: &Value) -> Arc<PodRecord> {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "labels": {"asya.sh/asya": "a"}, "annotations": {"asya.sh/template-hash": "current"}},
        "status": status,
    });
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    record(&object)
}

fn ready() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

fn waiting(container: &str, reason: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{"name": container, "state": {"waiting": {"reason": reason}}}]})
}

fn count(pods: &[Arc<PodRecord>]) -> PodSummary {
    PodSummary::count(pods, Some("current"), now())
}

/// STA-1
#[test]
fn finished_and_terminating_pods_and_past_restarts_do_not_count() {
    let evicted = json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]});
    let restarted = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "asya-runtime", "restartCount": 40, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": ago(5)}}}]});
    let terminating = json!({"deletionTimestamp": ago(3)});
    let counts = count(&[
        pod("ready", &json!({}), &ready()),
        pod("restarted", &json!({}), &restarted),
        pod("evicted", &json!({}), &evicted),
        pod("done", &json!({}), &json!({"phase": "Succeeded"})),
        pod(
            "terminating",
            &terminating,
            &waiting("asya-runtime", "CrashLoopBackOff"),
        ),
    ]);
    assert_eq!(
        (counts.current_ready, counts.failing, counts.pending),
        (2, 0, 0)
    );
    assert_eq!((counts.terminating, counts.existing), (1, 3));
    assert_eq!(counts.failure, None);
}

/// STA-2
#[test]
fn error_exit_counts_for_ten_minutes() {
    let exited = |seconds| {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "asya-sidecar", "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "finishedAt": ago(seconds)}}}]});
        count(&[pod("p", &json!({}), &status)])
    };
    let fresh = exited(590);
    assert_eq!(
        fresh.failure.as_ref().map(|it| it.problem.class),
        Some(ProblemClass::SidecarError)
    );
    assert_eq!(
        fresh.failure_expires,
        Some(now() + SignedDuration::from_secs(10))
    );
    let old = exited(601);
    assert_eq!(
        (old.failure, old.pending, old.failure_expires),
        (None, 1, None)
    );
}

/// STA-2, STA-3
#[test]
fn highest_class_of_recent_error_exits_is_reported() {
    let exited = |name: &str, seconds| {
        json!({"name": name, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "finishedAt": ago(seconds)}}})
    };
    let failure = |runtime| {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [exited("asya-sidecar", 5), exited("asya-runtime", runtime)]});
        let counts = count(&[pod("p", &json!({}), &status)]);
        let class = counts.failure.map(|it| it.problem.class);
        (class, counts.failure_expires)
    };
    let ends = |seconds| Some(now() + SignedDuration::from_secs(seconds));
    assert_eq!(
        failure(590),
        (Some(ProblemClass::RuntimeError), ends(10)),
        "the sidecar's exit is newer, but of a lower class"
    );
    assert_eq!(failure(601), (Some(ProblemClass::SidecarError), ends(595)));
}

/// STA-3
#[test]
fn highest_class_then_the_smallest_name_is_reported() {
    let counts = count(&[
        pod(
            "z",
            &json!({}),
            &waiting("asya-runtime", "ImagePullBackOff"),
        ),
        pod(
            "b",
            &json!({}),
            &waiting("asya-runtime", "CrashLoopBackOff"),
        ),
        pod("y", &json!({}), &waiting("helper", "ErrImagePull")),
    ]);
    let failed = counts.failure.unwrap();
    assert_eq!(failed.message(), "Container helper: ErrImagePull (pod y)");
    assert_eq!((counts.failing, counts.pending), (3, 0));
}

/// STA-3, STA-4
#[test]
fn only_pods_of_the_current_template_cause_a_failure() {
    let old = json!({"annotations": {"asya.sh/template-hash": "older"}});
    let counts = count(&[
        pod(
            "old-bad",
            &old,
            &waiting("asya-runtime", "CrashLoopBackOff"),
        ),
        pod("old-good", &old, &ready()),
        pod(
            "new",
            &json!({}),
            &waiting("asya-runtime", "ContainerCreating"),
        ),
    ]);
    assert_eq!(counts.failure, None);
    assert_eq!(
        (
            counts.outdated,
            counts.current_ready,
            counts.failing,
            counts.pending
        ),
        (2, 0, 1, 1)
    );
}

/// STA-2
#[test]
fn unschedulable_pod_is_pending_not_failing() {
    let status = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: Insufficient cpu"},
    ]});
    let counts = count(&[pod("p", &json!({}), &status)]);
    assert_eq!((counts.failing, counts.pending), (0, 1));
    assert_eq!(
        counts.failure.map(|it| it.problem.class),
        Some(ProblemClass::PendingResources)
    );
}
