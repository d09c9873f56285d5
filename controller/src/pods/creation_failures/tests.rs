use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::PodCreationFailures;
use crate::cluster::store::Store;
use crate::cluster::watch_scope::WatchScope;
use crate::pods::event_failures::SWEEP;
use crate::record::{Enqueue, Key, PodRecord, Projected, StatefulSetFailureRecord, TypedWorkload};

const QUOTA: &str = r#"pods "a-0" is forbidden: exceeded quota: small"#;
const POLICY: &str = r#"pods "a-0" is forbidden: violates PodSecurity"#;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn projected<R: crate::record::Record>(object: &Value) -> Projected<R> {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn event(set: &str, uid: &str, second: i64, text: &str) -> Projected<StatefulSetFailureRecord> {
    projected(&json!({
        "metadata": {"name": "e", "namespace": "ns", "uid": "e", "resourceVersion": "7"},
        "involvedObject": {"kind": "StatefulSet", "namespace": "ns", "name": set, "uid": uid},
        "reason": "FailedCreate",
        "message": format!("create Pod {set}-0 in StatefulSet {set} failed error: {text}"),
        "lastTimestamp": at(second).to_string(),
    }))
}

/// Set `a`, with these desired and existing pods.
fn set(uid: &str, desired: i32, total: i32) -> Projected<TypedWorkload<StatefulSet>> {
    projected(&json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": "3", "generation": 1,
            "labels": {"asya.sh/actor": "a"}},
        "spec": {"replicas": desired},
        "status": {"observedGeneration": 1, "replicas": total},
    }))
}

fn pod(second: i64) -> Arc<PodRecord> {
    let object = json!({"metadata": {"name": "a-1", "namespace": "ns", "uid": "p", "resourceVersion": "1",
        "creationTimestamp": at(second).to_string()}});
    projected::<PodRecord>(&object).record
}

struct Watched {
    sets: Arc<Store<TypedWorkload<StatefulSet>>>,
    failures: PodCreationFailures,
}

impl Watched {
    fn new() -> Self {
        let sets = Arc::default();
        let failures = PodCreationFailures::new(&sets);
        Self { sets, failures }
    }

    /// Set `a`, with a failure reported by an Event at second 100.
    fn refused() -> Self {
        let watched = Self::new();
        watched.sets.apply(&WatchScope::Cluster, &set("u", 3, 1));
        assert_eq!(watched.take(&event("a", "u", 100, QUOTA)), actor_a());
        watched
    }

    fn take(&self, event: &Projected<StatefulSetFailureRecord>) -> Enqueue {
        self.failures.take(&event.record, event.record.last)
    }

    fn observe(
        &self,
        set: &Projected<TypedWorkload<StatefulSet>>,
        pods: &[Arc<PodRecord>],
        second: i64,
    ) -> Option<String> {
        let workload = &set.record.record;
        let failure = self.failures.of_workload(workload, pods, at(second));
        self.failures.record_workload(workload);
        Some(failure?.failure.message.into())
    }
}

fn actor_a() -> Enqueue {
    Enqueue::Actor(Key::new("ns", "a"))
}

/// STA-2
#[test]
fn failure_is_reported_verbatim_until_a_pod_is_created() {
    let incomplete = set("u", 3, 1);
    for (case, pods, second, is_reported) in [
        ("refused", vec![], 100, true),
        ("an older pod", vec![pod(100)], 101, true),
        ("a newer pod", vec![pod(101)], 101, false),
        ("repeated just in time", vec![], 1599, true),
        ("not repeated", vec![], 1600, false),
    ] {
        let failure = Watched::refused().observe(&incomplete, &pods, second);
        let expected = is_reported.then(|| QUOTA.to_owned());
        assert_eq!(failure, expected, "{case}");
    }
    for (case, set) in [
        ("all pods exist", set_with_all()),
        ("another set with the same name", set("v", 3, 1)),
    ] {
        let failure = Watched::refused().observe(&set, &[], 100);
        assert_eq!(failure, None, "{case}");
    }
    let watched = Watched::refused();
    assert_eq!(watched.observe(&set_with_all(), &[], 100), None);
    assert_eq!(
        watched.observe(&incomplete, &[], 101),
        None,
        "the failure was dropped"
    );
    assert_eq!(watched.failures.len(), 0);
}

fn set_with_all() -> Projected<TypedWorkload<StatefulSet>> {
    set("u", 3, 3)
}

/// STA-2, STA-6
#[test]
fn only_new_failures_enqueue_the_actor() {
    let watched = Watched::refused();
    for (case, event, expected) in [
        ("repeated", event("a", "u", 160, QUOTA), Enqueue::Nothing),
        (
            "delivered twice",
            event("a", "u", 160, QUOTA),
            Enqueue::Nothing,
        ),
        ("older", event("a", "u", 130, POLICY), Enqueue::Nothing),
        ("another cause", event("a", "u", 190, POLICY), actor_a()),
        (
            "repeated after it expired",
            event("a", "u", 9000, POLICY),
            actor_a(),
        ),
        (
            "of an earlier set",
            event("a", "t", 9001, QUOTA),
            Enqueue::Nothing,
        ),
        (
            "of an unknown set",
            event("b", "u", 9002, QUOTA),
            Enqueue::Nothing,
        ),
    ] {
        assert_eq!(watched.take(&event), expected, "{case}");
    }
}

/// OPS-8 (b)
#[test]
fn one_entry_per_set_is_kept_and_unknown_sets_are_swept() {
    let watched = Watched::refused();
    for second in 102..110 {
        watched.take(&event("a", "u", second, POLICY));
    }
    for number in 1..SWEEP {
        let foreign = event(&number.to_string(), "f", 101, QUOTA);
        watched.failures.take(&foreign.record, at(101));
    }
    watched
        .failures
        .take(&event("late", "f", 200, QUOTA).record, at(200));
    assert_eq!(watched.failures.len(), 2);
    assert_eq!(
        watched.observe(&set("u", 3, 1), &[], 200),
        Some(POLICY.to_owned())
    );
}
