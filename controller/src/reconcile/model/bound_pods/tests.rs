use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::BoundPods;
use super::Counted;
use crate::fault::Reason;
use crate::reconcile::tests::fixtures::record;
use crate::record::{PodRecord, UninjectedPodRecord};

const UID: &str = "actor-uid";

fn since() -> Time {
    Time("2026-01-01T00:00:10Z".parse().unwrap())
}

fn metadata(name: &str, created: &str, extra: &Value) -> Value {
    let mut metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "creationTimestamp": created});
    metadata
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    metadata
}

const BEFORE: &str = "2026-01-01T00:00:09Z";
const SAME: &str = "2026-01-01T00:00:10Z";
const AFTER: &str = "2026-01-01T00:00:11Z";

fn bare(name: &str, created: &str, extra: &Value) -> Arc<UninjectedPodRecord> {
    record(&json!({"metadata": metadata(name, created, extra)}))
}

fn marked(name: &str, uid: &str, containers: &[&str], init: &[&str]) -> Arc<PodRecord> {
    let annotations =
        json!({"annotations": {"asya.sh/injected-by": uid, "asya.sh/injected-hash": "a.b"}});
    let list = |names: &[&str]| {
        names
            .iter()
            .map(|name| json!({"name": name}))
            .collect::<Vec<_>>()
    };
    record(&json!({
        "metadata": metadata(name, AFTER, &annotations),
        "spec": {"containers": list(containers), "initContainers": list(init)},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

const BOTH: [&str; 3] = ["model", "asya-runtime", "asya-sidecar"];

fn count(marked: Vec<Arc<PodRecord>>, bare: Vec<Arc<UninjectedPodRecord>>) -> Counted {
    Counted::of(
        &BoundPods { marked, bare },
        UID,
        Some("a.b"),
        Some(&since()),
    )
}

/// BIND-7, BIND-8
#[test]
fn every_pod_without_a_sidecar_is_counted_under_a_reason() {
    let skipped = |reason: &str| json!({"annotations": {"asya.sh/not-injected": reason}});
    let table = [
        (
            count(vec![], vec![bare("p", BEFORE, &json!({}))]),
            "StartedBeforeBinding",
        ),
        (
            count(vec![], vec![bare("p", SAME, &json!({}))]),
            "StartedBeforeBinding",
        ),
        (
            count(vec![], vec![bare("p", AFTER, &json!({}))]),
            "WebhookUnavailable",
        ),
        (
            count(
                vec![],
                vec![bare(
                    "p",
                    AFTER,
                    &json!({"labels": {"asya.sh/inject": "false"}}),
                )],
            ),
            "OptedOut",
        ),
        (
            count(vec![], vec![bare("p", AFTER, &skipped("HostNetwork"))]),
            "HostNetwork",
        ),
        (
            count(
                vec![marked("p", UID, &["model", "asya-runtime"], &[])],
                vec![],
            ),
            "RemovedByOther",
        ),
        (
            count(vec![marked("p", "another", &BOTH, &[])], vec![]),
            "WebhookUnavailable",
        ),
    ];
    for (counted, reason) in table {
        let pods = &counted.pods;
        assert_eq!(
            (pods.matched, pods.injected, pods.not_injected),
            (1, 0, 1),
            "{reason}"
        );
        let told: Vec<_> = pods
            .reasons
            .iter()
            .map(|it| (&*it.reason, it.count, &*it.examples))
            .collect();
        assert_eq!(told, [(reason, 1, &["p".to_owned()][..])]);
        let (is_so, _, text) = counted.injected();
        assert_eq!(is_so, Some(false));
        assert!(text.contains(reason), "{text}");
    }
    let conflict = count(vec![], vec![bare("p", AFTER, &skipped("SpecConflict"))]);
    assert_eq!(conflict.injected().1, Reason::SpecConflict);
}

/// BIND-8
#[test]
fn pod_is_injected_if_it_has_the_mark_and_both_containers() {
    let native = marked("native", UID, &["model", "asya-runtime"], &["asya-sidecar"]);
    let counted = count(vec![marked("p", UID, &BOTH, &[]), native], vec![]);
    assert_eq!(
        (counted.pods.matched, counted.pods.injected, counted.ready),
        (2, 2, 2)
    );
    assert_eq!(counted.injected().1, Reason::AllPodsInjected);
    assert_eq!(counted.pods.outdated, 0);
    let pods = BoundPods {
        marked: vec![marked("p", UID, &BOTH, &[])],
        bare: vec![],
    };
    let other = Counted::of(&pods, UID, Some("c.b"), Some(&since()));
    assert_eq!((other.pods.injected, other.pods.outdated), (1, 1), "ROLL-8");
}

/// QUE-11: the condition does not change with every pod.
#[test]
fn status_counts_all_pods_and_names_the_first_few() {
    let names = ["d", "b", "a", "c"];
    let pods = names
        .iter()
        .map(|name| bare(name, BEFORE, &json!({})))
        .collect();
    let counted = count(vec![], pods);
    let reason = &counted.pods.reasons[0];
    assert_eq!(
        (reason.count, &*reason.examples),
        (4, &["a", "b", "c"].map(str::to_owned)[..])
    );
    let one = count(vec![], vec![bare("x", BEFORE, &json!({}))]);
    assert_eq!(counted.injected(), one.injected());
}

#[test]
fn terminating_pod_counts_only_in_the_total() {
    let leaving = json!({"deletionTimestamp": AFTER});
    let counted = count(vec![], vec![bare("p", BEFORE, &leaving)]);
    assert_eq!((counted.total, counted.pods.matched), (1, 0));
    assert_eq!(counted.injected().1, Reason::NotProven);
}

/// SAFE-18
#[test]
fn pods_labelled_for_another_actor_or_without_a_sidecar_count_too() {
    let labels = |extra: &Value| {
        let mut labels = json!({"labels": {"asya.sh/asya": "other"}});
        let all = labels.as_object_mut().unwrap();
        all.extend(extra.as_object().unwrap().clone());
        labels
    };
    let labelled = |extra: &Value| -> Arc<PodRecord> {
        record(&json!({"metadata": metadata("p", AFTER, &labels(extra))}))
    };
    let opted = json!({"labels": {"asya.sh/asya": "other", "asya.sh/inject": "false"}});
    let skipped = json!({"annotations": {"asya.sh/not-injected": "SpecConflict"}});
    for (pod, reason, lacks) in [
        (
            marked("p", "another-uid", &BOTH, &[]),
            "WebhookUnavailable",
            1,
        ),
        (labelled(&json!({})), "WebhookUnavailable", 1),
        (labelled(&skipped), "SpecConflict", 0),
        (labelled(&opted), "OptedOut", 0),
    ] {
        let counted = count(vec![pod], vec![]);
        assert_eq!((counted.pods.matched, counted.pods.injected), (1, 0));
        assert_eq!(counted.pods.reasons[0].reason, reason);
        assert_eq!(counted.lacking.len(), lacks, "{reason}");
    }
}

/// SAFE-10
#[test]
fn pod_missing_from_the_api_server_is_not_replaced() {
    let pods = ["gone", "stays"].map(|name| bare(name, BEFORE, &json!({})));
    let mut counted = count(vec![], pods.to_vec());
    assert_eq!(counted.lacking.len(), 2);
    let uid = counted.lacking[1].uid.clone();
    counted.keep(&[uid.clone()].into());
    for at_once in [false, true] {
        let left: Vec<_> = counted.replaceable(at_once).iter().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].uid, uid);
    }
}

/// SAFE-3
#[test]
fn pods_with_the_current_actor_part_are_counted_for_any_actor() {
    for (by, containers, admitted) in [
        (UID, &BOTH[..], 1),
        ("former-uid", &BOTH[..], 1),
        ("former-uid", &BOTH[..2], 0),
    ] {
        let counted = count(vec![marked("p", by, containers, &[])], vec![]);
        assert_eq!(counted.admitted, admitted, "{by} {containers:?}");
    }
    let pods = BoundPods {
        marked: vec![marked("p", UID, &BOTH, &[])],
        bare: Vec::new(),
    };
    for hash in [Some("other.b"), None] {
        assert_eq!(
            Counted::of(&pods, UID, hash, Some(&since())).admitted,
            0,
            "{hash:?}"
        );
    }
}
