use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Refusals, SWEEP};
use crate::cluster::store::Store;
use crate::record::{Enqueue, Key, OfKind, PodRecord, Projected, RefusalRecord};

const QUOTA: &str = r#"pods "a-0" is forbidden: exceeded quota: small"#;
const POLICY: &str = r#"pods "a-0" is forbidden: violates PodSecurity"#;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn seen<R: crate::record::Record>(object: &Value) -> Projected<R> {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn event(set: &str, uid: &str, second: i64, text: &str) -> Projected<RefusalRecord> {
    seen(&json!({
        "metadata": {"name": "e", "namespace": "ns", "uid": "e", "resourceVersion": "7"},
        "involvedObject": {"kind": "StatefulSet", "namespace": "ns", "name": set, "uid": uid},
        "reason": "FailedCreate",
        "message": format!("create Pod {set}-0 in StatefulSet {set} failed error: {text}"),
        "lastTimestamp": at(second).to_string(),
    }))
}

/// Set `a`, with these desired and existing pods.
fn set(uid: &str, desired: i32, total: i32) -> Projected<OfKind<StatefulSet>> {
    seen(&json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": "3", "generation": 1,
            "labels": {"asya.sh/actor": "a"}},
        "spec": {"replicas": desired},
        "status": {"observedGeneration": 1, "replicas": total},
    }))
}

fn pod(second: i64) -> Arc<PodRecord> {
    let object = json!({"metadata": {"name": "a-1", "namespace": "ns", "uid": "p", "resourceVersion": "1",
        "creationTimestamp": at(second).to_string()}});
    seen::<PodRecord>(&object).record
}

struct Watched {
    sets: Arc<Store<OfKind<StatefulSet>>>,
    refusals: Refusals,
}

impl Watched {
    fn new() -> Self {
        let sets = Arc::default();
        let refusals = Refusals::of(&sets);
        Self { sets, refusals }
    }

    /// With set `a`, refused by an Event of second 100.
    fn refused() -> Self {
        let watched = Self::new();
        watched.sets.show(&None, &set("u", 3, 1));
        assert_eq!(watched.take(&event("a", "u", 100, QUOTA)), of_a());
        watched
    }

    fn take(&self, event: &Projected<RefusalRecord>) -> Enqueue {
        let told = event.record.last;
        self.refusals.take(&event.record, told)
    }

    fn told(
        &self,
        set: &Projected<OfKind<StatefulSet>>,
        pods: &[Arc<PodRecord>],
        second: i64,
    ) -> Option<String> {
        let workload = &set.record.record;
        let refusal = self.refusals.of_workload(workload, pods, at(second));
        self.refusals.saw(workload);
        Some(refusal?.failure.message.into())
    }
}

fn of_a() -> Enqueue {
    Enqueue::Actor(Key::new("ns", "a"))
}

/// STA-2
#[test]
fn refusal_is_reported_in_the_api_servers_words_until_a_pod_is_created() {
    let lacking = set("u", 3, 1);
    let told = Some(QUOTA.to_owned());
    for (what, set, pods, second, wanted) in [
        ("refused", &lacking, vec![], 100, told.clone()),
        ("an older pod", &lacking, vec![pod(100)], 101, told.clone()),
        ("another pod was made", &lacking, vec![pod(101)], 101, None),
        ("not repeated", &lacking, vec![], 1600, None),
        ("just repeated", &lacking, vec![], 1599, told),
        ("has them all", &set_with_all(), vec![], 100, None),
        (
            "another set of its name",
            &set("v", 3, 1),
            vec![],
            100,
            None,
        ),
    ] {
        assert_eq!(
            Watched::refused().told(set, &pods, second),
            wanted,
            "{what}"
        );
    }
    let watched = Watched::refused();
    assert_eq!(watched.told(&set_with_all(), &[], 100), None);
    assert_eq!(
        watched.told(&lacking, &[], 101),
        None,
        "it is over for good"
    );
    assert_eq!(watched.refusals.len(), 0);
}

fn set_with_all() -> Projected<OfKind<StatefulSet>> {
    set("u", 3, 3)
}

/// STA-2, STA-6
#[test]
fn only_new_refusals_enqueue_the_actor() {
    let watched = Watched::refused();
    for (what, event, wanted) in [
        (
            "the same, again",
            event("a", "u", 160, QUOTA),
            Enqueue::Nobody,
        ),
        ("seen again", event("a", "u", 160, QUOTA), Enqueue::Nobody),
        ("older", event("a", "u", 130, POLICY), Enqueue::Nobody),
        ("another cause", event("a", "u", 190, POLICY), of_a()),
        (
            "again after it had ended",
            event("a", "u", 9000, POLICY),
            of_a(),
        ),
        (
            "of an earlier set",
            event("a", "t", 9001, QUOTA),
            Enqueue::Nobody,
        ),
        ("nobody's", event("b", "u", 9002, QUOTA), Enqueue::Nobody),
    ] {
        assert_eq!(watched.take(&event), wanted, "{what}");
    }
}

/// OPS-8
#[test]
fn one_entry_per_set_is_kept_and_foreign_sets_are_swept() {
    let watched = Watched::refused();
    for second in 102..110 {
        watched.take(&event("a", "u", second, POLICY));
    }
    for number in 1..SWEEP {
        let foreign = event(&number.to_string(), "f", 101, QUOTA);
        watched.refusals.take(&foreign.record, at(101));
    }
    watched
        .refusals
        .take(&event("late", "f", 200, QUOTA).record, at(200));
    assert_eq!(watched.refusals.len(), 2);
    assert_eq!(
        watched.told(&set("u", 3, 1), &[], 200),
        Some(POLICY.to_owned())
    );
}
