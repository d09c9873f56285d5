use serde_json::{Value, json};

use super::{
    UpdateStrategy, eviction_spares_most_pods, gpus, next_to_evict, requests_gpus, rounded_down,
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
    assert_eq!(strategy("DaemonSet", &json!({})).desired_replicas, None);
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
        let found =
            eviction_spares_most_pods(roll, reduces_ready.iter().copied(), (outdated, matched));
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
