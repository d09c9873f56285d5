use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::MountFailures;
use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::pods::event_failures::SWEEP;
use crate::record::{Enqueue, Key, PodEventRecord, PodRecord, ProblemClass, Projected};

const MISSING: &str = r#"MountVolume.SetUp failed for volume "settings" : configmap "a" not found"#;
const ALSO_MISSING: &str = r#"MountVolume.SetUp failed for volume "keys" : secret "b" not found"#;
const BROKEN: &str = r#"MountVolume.SetUp failed for volume "data" : mount failed: exit status 32"#;
const SUMMARY: &str =
    "Unable to attach or mount volumes: unmounted volumes=[settings]: timed out waiting";

fn start() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn event(pod: &str, uid: &str, second: i64, message: &str) -> Projected<PodEventRecord> {
    let object = json!({
        "metadata": {"name": format!("{pod}.{message}"), "namespace": "ns", "uid": "e", "resourceVersion": "7"},
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": pod, "uid": uid},
        "reason": "FailedMount",
        "message": message,
        "lastTimestamp": (start() + SignedDuration::from_secs(second)).to_string(),
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

fn pod(name: &str, uid: &str, version: u64, status: &Value) -> Projected<PodRecord> {
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(), "labels": {"asya.sh/asya": "a"}},
        "status": status,
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

fn creating() -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "False"}],
        "containerStatuses": [{"name": "asya-runtime", "state": {"waiting": {"reason": "ContainerCreating"}}}]})
}

struct Watched {
    pods: Arc<Store<PodRecord>>,
    mounts: MountFailures,
}

impl Watched {
    fn new() -> Self {
        let pods = Arc::default();
        let mounts = MountFailures::new(&pods);
        Self { pods, mounts }
    }

    fn with_pod(status: &Value) -> Self {
        let watched = Self::new();
        watched
            .pods
            .apply(&WatchScope::Cluster, &pod("p", "u", 1, status));
        watched
    }

    fn report(&self, second: i64, message: &str) -> Vec<Enqueue> {
        self.mounts
            .apply(&WatchScope::Cluster, &event("p", "u", second, message))
    }

    /// Class and reason of the problem that keeps `p` from running.
    fn problem(&self) -> Option<(ProblemClass, String)> {
        let mut pod = self.pods.get(&Key::new("ns", "p")).unwrap();
        self.mounts.add_problem_to(&mut pod);
        let problem = pod.problem.clone()?;
        Some((problem.class, problem.reason.to_string()))
    }

    fn class(&self) -> Option<ProblemClass> {
        self.problem().map(|(class, _)| class)
    }
}

fn actor() -> Vec<Enqueue> {
    vec![Enqueue::Actor(Key::new("ns", "a"))]
}

/// STA-2, STA-6
#[test]
fn mount_event_becomes_the_pods_problem_and_enqueues_the_actor_once() {
    let watched = Watched::with_pod(&creating());
    assert_eq!(watched.report(1, MISSING), actor());
    assert_eq!(
        watched.problem(),
        Some((
            ProblemClass::ConfigError,
            "FailedMount for volume settings: ConfigMap a not found".to_owned()
        ))
    );
    assert_eq!(watched.report(3, MISSING), [], "nothing new");
}

/// STA-2
#[test]
fn event_before_its_pod_applies_once_the_pod_is_observed() {
    let watched = Watched::new();
    assert_eq!(watched.report(1, MISSING), [], "the pod is unknown");
    watched
        .pods
        .apply(&WatchScope::Cluster, &pod("p", "u", 1, &creating()));
    assert_eq!(watched.class(), Some(ProblemClass::ConfigError));
}

/// STA-2
#[test]
fn problem_ends_when_containers_start_or_the_pod_is_deleted() {
    let started = [
        json!({"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}],
            "containerStatuses": [{"name": "asya-runtime", "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
        json!({"conditions": [{"type": "Ready", "status": "True"}]}),
        json!({"containerStatuses": [{"name": "asya-runtime", "state": {"running": {}}}]}),
        json!({"initContainerStatuses": [{"name": "first", "state": {"terminated": {"exitCode": 0}}}]}),
    ];
    for status in started {
        let watched = Watched::with_pod(&creating());
        watched.report(1, MISSING);
        watched
            .pods
            .apply(&WatchScope::Cluster, &pod("p", "u", 2, &status));
        assert_eq!(watched.class(), None, "{status}");
        assert_eq!(
            watched.report(9, BROKEN),
            [],
            "a late Event enqueued the actor: {status}"
        );
    }
    let watched = Watched::with_pod(&creating());
    watched.report(1, MISSING);
    let image = json!({"containerStatuses": [{"name": "asya-runtime", "state": {"waiting": {"reason": "ErrImagePull"}}}]});
    watched
        .pods
        .apply(&WatchScope::Cluster, &pod("p", "u", 2, &image));
    assert_eq!(watched.class(), Some(ProblemClass::ImagePullError));

    let watched = Watched::with_pod(&creating());
    watched.report(1, MISSING);
    watched
        .pods
        .delete(&WatchScope::Cluster, &pod("p", "u", 2, &creating()));
    watched
        .pods
        .apply(&WatchScope::Cluster, &pod("p", "next", 3, &creating()));
    assert_eq!(watched.class(), None, "another pod with the same name");
}

/// STA-3
#[test]
fn one_volume_is_reported_until_it_is_resolved() {
    for (reports, expected, case) in [
        (
            vec![(1, MISSING), (2, BROKEN), (3, MISSING), (4, BROKEN)],
            MISSING,
            "both are repeated",
        ),
        (
            vec![(1, BROKEN), (2, MISSING)],
            MISSING,
            "the higher class takes precedence",
        ),
        (
            vec![(1, MISSING), (123, SUMMARY), (124, MISSING), (247, SUMMARY)],
            MISSING,
            "the summary names no cause",
        ),
        (
            vec![(1, MISSING), (2, ALSO_MISSING), (3, MISSING)],
            MISSING,
            "the text is stable",
        ),
        (
            vec![(1, MISSING), (2, ALSO_MISSING), (4, ALSO_MISSING)],
            ALSO_MISSING,
            "the other was reported twice since",
        ),
        (
            vec![(1, MISSING), (2, ALSO_MISSING), (2, ALSO_MISSING)],
            MISSING,
            "a relist delivers the same Event",
        ),
        (
            vec![(1, MISSING), (302, BROKEN)],
            BROKEN,
            "the first is no longer repeated",
        ),
        (
            vec![(302, BROKEN), (1, MISSING)],
            BROKEN,
            "a list also returns old Events",
        ),
    ] {
        let watched = Watched::with_pod(&creating());
        for (second, message) in &reports {
            watched.report(*second, message);
        }
        let alone = Watched::with_pod(&creating());
        alone.report(1, expected);
        assert_eq!(watched.problem(), alone.problem(), "{case}");
    }
}

/// FW-14
#[test]
fn entries_are_bounded_by_the_pods_with_problems() {
    let watched = Watched::with_pod(&creating());
    watched.report(0, MISSING);
    let later = start() + SignedDuration::from_mins(10);
    for number in 0..3 * SWEEP {
        let event = event(&format!("foreign-{number}"), "f", 1, BROKEN);
        let seconds = i64::try_from(number).unwrap();
        watched
            .mounts
            .record_event(&event.record, later + SignedDuration::from_secs(seconds));
    }
    assert!(watched.mounts.len() <= SWEEP, "{}", watched.mounts.len());
    assert_eq!(
        watched.class(),
        Some(ProblemClass::ConfigError),
        "the entry of an existing pod was dropped"
    );
    for _ in 0..10 {
        watched.report(2, BROKEN);
    }
    assert!(watched.mounts.len() <= SWEEP);
}

/// FW-13, FW-14
#[test]
fn entries_of_unwatched_namespaces_are_dropped() {
    let watched = Watched::with_pod(&creating());
    watched.report(0, MISSING);
    let only = |namespace: &str| [WatchScope::Namespace(Arc::from(namespace))].into();
    watched.mounts.retain_scopes(&only("ns"));
    assert_eq!(watched.mounts.len(), 1);
    watched.mounts.retain_scopes(&only("other"));
    assert_eq!(watched.mounts.len(), 0);
}
