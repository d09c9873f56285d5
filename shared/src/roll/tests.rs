use serde_json::{Value, json};

use super::{
    UpdateStrategy, eviction_spares_most_pods, gpus, next_to_evict, requests_gpus,
    requires_eviction, rounded_down,
};
use crate::resolve::{ObjectRef, RolloutMethod};

fn strategy(kind: &str, spec: &Value) -> UpdateStrategy {
    let body = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "generation": 1},
        "spec": spec, "status": {"observedGeneration": 1, "replicas": 4, "updatedReplicas": 4},
    });
    UpdateStrategy::of(&ObjectRef::of(&body).unwrap(), &body)
}

/// SAFE-17
#[test]
fn percentages_are_rounded_down() {
    for (field, replicas, expected) in [
        (Some(json!("25%")), 4, 1),
        (Some(json!("25%")), 3, 0),
        (None, 4, 1),
        (None, 1, 0),
        (Some(json!(1)), 1, 1),
        (Some(json!(0)), 9, 0),
        (Some(json!("many")), 9, 0),
    ] {
        assert_eq!(
            rounded_down(field.as_ref(), replicas),
            expected,
            "{field:?}"
        );
    }
}

/// ROLL-6, SAFE-17
#[test]
fn update_strategy_says_how_many_pods_come_and_go() {
    let update = |surge: Value, unavailable: Value| json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}});
    for (kind, spec, surge, unavailable, needs_eviction) in [
        ("Deployment", json!({"replicas": 4}), 1, 1, false),
        ("Deployment", json!({"replicas": 1}), 1, 0, false),
        (
            "Deployment",
            update(json!("30%"), json!("30%")),
            2,
            1,
            false,
        ),
        ("Deployment", update(json!(0), json!(0)), 0, 1, false),
        ("Deployment", update(json!(3), json!(0)), 3, 0, false),
        (
            "Deployment",
            json!({"strategy": {"type": "Recreate"}}),
            0,
            0,
            true,
        ),
        ("StatefulSet", json!({"replicas": 4}), 0, 1, false),
        (
            "StatefulSet",
            json!({"updateStrategy": {"type": "OnDelete"}}),
            0,
            1,
            true,
        ),
        ("DaemonSet", json!({}), 0, 0, false),
    ] {
        let found = strategy(kind, &spec);
        assert_eq!(
            (found.max_surge, found.max_unavailable, found.needs_eviction),
            (surge, unavailable, needs_eviction),
            "{kind} {spec}"
        );
    }
    assert!(strategy("Deployment", &json!({"paused": true})).paused);
}

/// SAFE-11: otherwise the number before the last eviction would count, which is too large after a scale-down.
#[test]
fn number_of_pods_is_known_of_workloads_that_only_evictions_roll() {
    let leaders = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
    for ((api_version, kind), spec, status, expected) in [
        (
            ("apps/v1", "ReplicaSet"),
            json!({"replicas": 3}),
            json!({}),
            Some(3),
        ),
        (("apps/v1", "ReplicaSet"), json!({}), json!({}), Some(1)),
        (leaders, json!({"replicas": 0}), json!({}), Some(0)),
        (
            leaders,
            json!({"replicas": 3, "leaderWorkerTemplate": {"size": 4}}),
            json!({}),
            Some(3),
        ),
        (
            ("apps/v1", "DaemonSet"),
            json!({}),
            json!({"desiredNumberScheduled": 5}),
            Some(5),
        ),
        (("apps/v1", "DaemonSet"), json!({}), json!({}), None),
        (
            ("example.com/v1", "Model"),
            json!({"replicas": 3}),
            json!({}),
            None,
        ),
    ] {
        let body = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec, "status": status,
        });
        let found = UpdateStrategy::of(&ObjectRef::of(&body).unwrap(), &body);
        let only = UpdateStrategy {
            desired_replicas: expected,
            ..UpdateStrategy::default()
        };
        assert_eq!(found, only, "{kind} {spec} {status}");
    }
}

/// ROLL-6, SAFE-11, SAFE-14
#[test]
fn pods_are_evicted_where_a_rollout_would_replace_none_or_several_at_once() {
    let template = RolloutMethod::AnnotateTemplate(Vec::new());
    let owner = RolloutMethod::Annotate(ObjectRef::default(), vec!["metadata"]);
    let rolling = strategy("StatefulSet", &json!({"replicas": 1}));
    let surging = strategy("Deployment", &json!({"replicas": 1}));
    let on_delete = strategy(
        "StatefulSet",
        &json!({"updateStrategy": {"type": "OnDelete"}}),
    );
    let recreated = strategy("Deployment", &json!({"strategy": {"type": "Recreate"}}));
    for (case, roll, workloads, expected) in [
        ("one StatefulSet", &template, &[&rolling][..], false),
        (
            "the models of a set",
            &template,
            &[&rolling, &rolling],
            true,
        ),
        ("Deployments", &template, &[&surging, &surging], false),
        ("one of each", &template, &[&rolling, &surging], false),
        ("OnDelete", &template, &[&on_delete], true),
        ("Recreate", &template, &[&recreated], true),
        ("Recreate, by its owner", &owner, &[&recreated], true),
        ("by its owner", &owner, &[&surging], false),
        ("no other way", &RolloutMethod::Evict, &[], true),
    ] {
        let needs_eviction = workloads.iter().map(|it| it.needs_eviction);
        let deletes_pod_first = workloads.iter().map(|it| it.deletes_pod_first);
        let found = requires_eviction(roll, needs_eviction, deletes_pod_first);
        assert_eq!(found, expected, "{case}");
    }
}

/// SAFE-17
#[test]
fn eviction_is_preferred_only_where_most_pods_are_current() {
    let template = RolloutMethod::AnnotateTemplate(Vec::new());
    for (roll, reduces_ready, outdated, matched, expected) in [
        (&template, &[true][..], 1, 3, true),
        (&template, &[true], 2, 3, false),
        (&template, &[true], 3, 3, false),
        (&template, &[true, false], 1, 3, false),
        (&template, &[], 1, 3, false),
        (&RolloutMethod::Evict, &[true], 1, 3, false),
    ] {
        let reduces_ready_of_each = reduces_ready.iter().copied();
        let found = eviction_spares_most_pods(roll, reduces_ready_of_each, outdated, matched);
        assert_eq!(
            found, expected,
            "{roll:?} {reduces_ready:?} {outdated} {matched}"
        );
    }
}

/// SAFE-11
#[test]
fn pods_that_are_not_ready_are_evicted_first() {
    let next =
        |pods: &[(&'static str, bool)]| next_to_evict(pods, |it| it.1, |it| it.0).map(|it| it.0);
    assert_eq!(next(&[("a", true), ("b", false), ("c", true)]), Some("b"));
    assert_eq!(next(&[("a", true), ("c", true), ("b", true)]), Some("c"));
    assert_eq!(next(&[]), None);
}

/// ROLL-7
#[test]
fn accelerators_of_all_containers_count() {
    let pod = |limits: &[Value]| {
        let containers: Vec<_> = limits
            .iter()
            .map(|it| json!({"resources": {"limits": it}}))
            .collect();
        json!({"spec": {"containers": containers}})
    };
    for (limits, count, requests) in [
        (
            &[
                json!({"nvidia.com/gpu": 2}),
                json!({"amd.com/gpu": "1", "cpu": 8}),
            ][..],
            3,
            true,
        ),
        (&[json!({"cpu": "8"})], 0, false),
        (&[json!({"habana.ai/gaudi": "500m"})], 0, true),
        (&[json!(null)], 0, false),
        (&[], 0, false),
    ] {
        let pod = pod(limits);
        assert_eq!(
            (gpus(&pod), requests_gpus(&pod)),
            (count, requests),
            "{pod}"
        );
    }
}
