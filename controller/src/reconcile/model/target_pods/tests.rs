use std::sync::Arc;

use asya_shared::api::BindingStrategy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{SidecarState, TargetPodCounts, TargetPods};
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

fn uninjected_pod(name: &str, created: &str, extra: &Value) -> Arc<UninjectedPodRecord> {
    record(&json!({"metadata": metadata(name, created, extra)}))
}

fn injected_pod(name: &str, uid: &str, containers: &[&str], init: &[&str]) -> Arc<PodRecord> {
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

fn count(
    labelled: Vec<Arc<PodRecord>>,
    uninjected: Vec<Arc<UninjectedPodRecord>>,
) -> TargetPodCounts {
    TargetPodCounts::count(
        &TargetPods {
            labelled,
            uninjected,
        },
        UID,
        BindingStrategy::Pod,
        Some("a.b"),
        Some(&since()),
    )
}

/// BIND-7: the webhook leaves pods of a binding with strategy Template alone.
#[test]
fn pods_of_a_template_without_the_sidecar_are_not_blamed_on_the_webhook() {
    for (created, reason) in [(BEFORE, "StartedBeforeBinding"), (AFTER, "NotInTemplate")] {
        let pods = TargetPods {
            labelled: vec![],
            uninjected: vec![uninjected_pod("p", created, &json!({}))],
        };
        let counted = TargetPodCounts::count(
            &pods,
            UID,
            BindingStrategy::Template,
            Some("a.b"),
            Some(&since()),
        );
        let reasons: Vec<_> = counted.pods.reasons.iter().map(|it| &*it.reason).collect();
        assert_eq!(reasons, [reason]);
    }
}

/// BIND-7, BIND-8
#[test]
fn every_pod_without_a_sidecar_is_counted_under_a_reason() {
    let skipped = |reason: &str| json!({"annotations": {"asya.sh/not-injected": reason}});
    let table = [
        (
            count(vec![], vec![uninjected_pod("p", BEFORE, &json!({}))]),
            "StartedBeforeBinding",
        ),
        (
            count(vec![], vec![uninjected_pod("p", SAME, &json!({}))]),
            "StartedBeforeBinding",
        ),
        (
            count(vec![], vec![uninjected_pod("p", AFTER, &json!({}))]),
            "WebhookUnavailable",
        ),
        (
            count(
                vec![],
                vec![uninjected_pod(
                    "p",
                    AFTER,
                    &json!({"labels": {"asya.sh/inject": "false"}}),
                )],
            ),
            "OptedOut",
        ),
        (
            count(
                vec![],
                vec![uninjected_pod("p", AFTER, &skipped("HostNetwork"))],
            ),
            "HostNetwork",
        ),
        (
            count(
                vec![injected_pod("p", UID, &["model", "asya-runtime"], &[])],
                vec![],
            ),
            "RemovedByOther",
        ),
        (
            count(vec![injected_pod("p", "another", &BOTH, &[])], vec![]),
            "StartedBeforeBinding",
        ),
    ];
    for (counted, reason) in table {
        let pods = &counted.pods;
        assert_eq!(
            (pods.matched, pods.injected, pods.not_injected),
            (1, 0, 1),
            "{reason}"
        );
        let reported: Vec<_> = pods
            .reasons
            .iter()
            .map(|group| (&*group.reason, group.count, &*group.examples))
            .collect();
        assert_eq!(reported, [(reason, 1, &["p".to_owned()][..])]);
    }
}

/// ROLL-5, SAFE-1
#[test]
fn pods_from_which_the_webhook_withheld_the_sidecar_differ_from_those_that_lack_it() {
    for (reason, sidecar) in [
        ("NotProved", SidecarState::NotInjectedYet),
        ("ProbeRejected", SidecarState::NotInjectedYet),
        ("NotInTemplate", SidecarState::Missing),
    ] {
        let skipped = json!({"annotations": {"asya.sh/not-injected": reason}});
        let counted = count(vec![], vec![uninjected_pod("p", AFTER, &skipped)]);
        assert_eq!(counted.outdated[0].sidecar, sidecar, "{reason}");
    }
}

/// ROLL-5
#[test]
fn pods_without_a_mark_may_have_been_reviewed_by_a_stale_webhook_only_at_the_start_of_a_binding() {
    for (created, sidecar) in [
        (BEFORE, SidecarState::NotInjectedYet),
        (AFTER, SidecarState::NotInjectedYet),
        ("2026-01-01T00:00:40Z", SidecarState::NotInjectedYet),
        ("2026-01-01T00:00:41Z", SidecarState::Missing),
    ] {
        let counted = count(vec![], vec![uninjected_pod("p", created, &json!({}))]);
        assert_eq!(counted.outdated[0].sidecar, sidecar, "{created}");
    }
    let of_another_actor = count(vec![injected_pod("p", "other", &BOTH, &[])], vec![]);
    let sidecar = of_another_actor.outdated[0].sidecar;
    assert_eq!(sidecar, SidecarState::NotInjectedYet);
}

/// BIND-8
#[test]
fn pod_with_our_annotations_and_both_containers_is_injected() {
    let native = injected_pod("native", UID, &["model", "asya-runtime"], &["asya-sidecar"]);
    let counted = count(vec![injected_pod("p", UID, &BOTH, &[]), native], vec![]);
    assert_eq!(
        (counted.pods.matched, counted.pods.injected, counted.ready),
        (2, 2, 2)
    );
    assert_eq!(counted.pods.outdated, 0);
    let pods = TargetPods {
        labelled: vec![injected_pod("p", UID, &BOTH, &[])],
        uninjected: vec![],
    };
    let other = TargetPodCounts::count(
        &pods,
        UID,
        BindingStrategy::Pod,
        Some("c.b"),
        Some(&since()),
    );
    assert_eq!((other.pods.injected, other.pods.outdated), (1, 1));
}

/// ROLL-8 (c, d, e)
#[test]
fn either_hash_outdates_a_pod_but_only_the_actor_hash_or_roll_now_replaces_it() {
    let pods = TargetPods {
        labelled: vec![injected_pod("p", UID, &BOTH, &[])],
        uninjected: vec![],
    };
    for (hash, outdated, replaced, replaced_by_roll_now) in [
        ("a.b", 0, 0, 0),
        ("a.other", 1, 0, 1),
        ("other.b", 1, 1, 1),
        ("other.other", 1, 1, 1),
    ] {
        let counted =
            TargetPodCounts::count(&pods, UID, BindingStrategy::Pod, Some(hash), Some(&since()));
        assert_eq!(counted.pods.outdated, outdated, "{hash}");
        let replaceable = [false, true].map(|roll_now| counted.replaceable(roll_now).len());
        assert_eq!(replaceable, [replaced, replaced_by_roll_now], "{hash}");
    }
}

/// QUE-11
#[test]
fn status_counts_all_pods_and_names_the_first_few() {
    let names = ["d", "b", "a", "c"];
    let pods = names
        .iter()
        .map(|name| uninjected_pod(name, BEFORE, &json!({})))
        .collect();
    let counted = count(vec![], pods);
    let reason = &counted.pods.reasons[0];
    assert_eq!(
        (reason.count, &*reason.examples),
        (4, &["a", "b", "c"].map(str::to_owned)[..])
    );
}

#[test]
fn terminating_pod_counts_only_in_the_total() {
    let terminating = json!({"deletionTimestamp": AFTER});
    let counted = count(vec![], vec![uninjected_pod("p", BEFORE, &terminating)]);
    assert_eq!((counted.total, counted.pods.matched), (1, 0));
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
    let opted_out = json!({"labels": {"asya.sh/asya": "other", "asya.sh/inject": "false"}});
    let skipped = json!({"annotations": {"asya.sh/not-injected": "SpecConflict"}});
    for (pod, reason, outdated) in [
        (
            injected_pod("p", "another-uid", &BOTH, &[]),
            "StartedBeforeBinding",
            1,
        ),
        (labelled(&json!({})), "WebhookUnavailable", 1),
        (labelled(&skipped), "SpecConflict", 0),
        (labelled(&opted_out), "OptedOut", 0),
    ] {
        let counted = count(vec![pod], vec![]);
        assert_eq!((counted.pods.matched, counted.pods.injected), (1, 0));
        assert_eq!(counted.pods.reasons[0].reason, reason);
        assert_eq!(counted.outdated.len(), outdated, "{reason}");
    }
}

/// SAFE-10
#[test]
fn pod_missing_from_the_api_server_is_not_replaced() {
    let pods = ["gone", "stays"].map(|name| uninjected_pod(name, BEFORE, &json!({})));
    let mut counted = count(vec![], pods.to_vec());
    assert_eq!(counted.outdated.len(), 2);
    let uid = counted.outdated[1].uid.clone();
    counted.retain_existing(&[uid.clone()].into());
    for include_platform in [false, true] {
        let remaining: Vec<_> = counted.replaceable(include_platform).iter().collect();
        assert_eq!(remaining.len(), 1);
        assert_eq!(remaining[0].uid, uid);
    }
}

/// SAFE-3
#[test]
fn pods_with_the_current_actor_hash_are_counted_for_any_actor() {
    for (by, containers, admitted) in [
        (UID, &BOTH[..], 1),
        ("previous-uid", &BOTH[..], 1),
        ("previous-uid", &BOTH[..2], 0),
    ] {
        let counted = count(vec![injected_pod("p", by, containers, &[])], vec![]);
        assert_eq!(
            counted.injected_for_any_actor, admitted,
            "{by} {containers:?}"
        );
    }
    let pods = TargetPods {
        labelled: vec![injected_pod("p", UID, &BOTH, &[])],
        uninjected: Vec::new(),
    };
    for hash in [Some("other.b"), None] {
        assert_eq!(
            TargetPodCounts::count(&pods, UID, BindingStrategy::Pod, hash, Some(&since()))
                .injected_for_any_actor,
            0,
            "{hash:?}"
        );
    }
}
