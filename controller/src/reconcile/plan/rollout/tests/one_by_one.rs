//! Eviction one by one, and rollouts that make no progress.

use std::time::Duration;

use asya_shared::resolve::RolloutMethod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{DESIRED_HASH, RolloutDecision, Row, at, deployment, requested, uninjected};
use crate::binding::rollout_slots::RefusedEviction;
use crate::fault::Reason;
use crate::reconcile::model::availability::{Availability, UnreadyPod};
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState};

/// ROLL-4 (b), ROLL-6
#[test]
fn pods_are_evicted_one_by_one_where_no_annotation_rolls_them() {
    let eviction = || Row {
        method: RolloutMethod::Evict,
        ..Row::default()
    };
    assert_eq!(eviction().evicts().as_deref(), Some("b"));
    assert_eq!(
        Row::default()
            .each_object(|object| object.needs_eviction = true)
            .evicts()
            .as_deref(),
        Some("b"),
        "OnDelete or partition"
    );
    let owned = Row {
        method: RolloutMethod::Annotate(deployment(), vec!["metadata", "annotations"]),
        ..Row::default()
    };
    let owned = owned.each_object(|object| object.needs_eviction = true);
    assert_eq!(
        owned.evicts().as_deref(),
        Some("b"),
        "Recreate, by its owner"
    );
    let model = TargetObject {
        deletes_pod_first: true,
        desired_replicas: Some(1),
        ready: 1,
        ..TargetObject::default()
    };
    let models = Row {
        objects: vec![model.clone(), model],
        ..Row::default()
    };
    assert_eq!(
        models.evicts().as_deref(),
        Some("b"),
        "an InferenceSet, whose StatefulSets would all lose their only pod"
    );
    let evicting = |active, total, unready: &[(&str, i64)], since| Row {
        active,
        total,
        availability: not_ready(unready),
        outdated: vec![uninjected("a", -50)],
        previous: requested(1, since),
        ..eviction()
    };
    let in_progress = Some(Reason::RolloutInProgress);
    assert_eq!(
        evicting(1, 2, &[], -1).waits(),
        in_progress,
        "a pod is terminating"
    );
    let uncounted = Row {
        availability: Availability {
            has_terminating: true,
            ..Availability::default()
        },
        ..evicting(2, 2, &[], -1)
    };
    assert_eq!(
        uncounted.waits(),
        in_progress,
        "a terminating pod is not counted yet"
    );
    assert_eq!(
        evicting(1, 1, &[], -1).waits(),
        in_progress,
        "the replacement is missing"
    );
    let unready = evicting(2, 2, &[("b", -1)], -1);
    assert_eq!(unready.waits(), in_progress, "the replacement is not ready");
    assert_eq!(evicting(2, 2, &[], -1).evicts().as_deref(), Some("a"));
}

/// Pods that are not ready, with the second of their creation.
fn not_ready(pods: &[(&str, i64)]) -> Availability {
    let unready = pods.iter().map(|(name, created)| UnreadyPod {
        name: (*name).into(),
        uid: (*name).into(),
        created: Some(Time(at(*created))),
    });
    Availability {
        unready: unready.collect(),
        ..Availability::default()
    }
}

/// ROLL-4 (b), SAFE-11, SAFE-12
#[test]
fn no_pod_is_evicted_while_a_replacement_is_missing_or_not_ready() {
    let evicted = |active, unready: &[(&str, i64)], since| Row {
        method: RolloutMethod::Evict,
        active,
        total: active,
        outdated: vec![uninjected("a", -20_000)],
        availability: not_ready(unready),
        previous: requested(1, since),
        ..Row::default()
    };
    for (case, row) in [
        ("not ready", evicted(2, &[("b", -601)], -602)),
        ("missing", evicted(1, &[], -601)),
    ] {
        assert!(row.stalls(), "{case}");
        let unlimited = Row { limit: None, ..row };
        assert_eq!(unlimited.waits(), Some(Reason::RolloutInProgress), "{case}");
    }
    let unreported = Row {
        listed: Some(1),
        ..evicted(2, &[], -1)
    };
    assert_eq!(
        unreported.waits(),
        Some(Reason::RolloutInProgress),
        "the watch still shows the evicted pod"
    );
    let in_time = evicted(2, &[("b", -599)], -602);
    assert_eq!(in_time.waits(), Some(Reason::RolloutInProgress));
    let ready = evicted(2, &[], -100_000);
    assert_eq!(ready.evicts().as_deref(), Some("a"), "it became ready");

    let broken = Row {
        previous: None,
        ..evicted(2, &[("b", -100_000)], 0)
    };
    assert_eq!(
        broken.waits(),
        Some(Reason::RolloutWaiting),
        "not caused by us"
    );
    let candidate = Row {
        previous: None,
        ..evicted(2, &[("a", -100_000)], 0)
    };
    assert_eq!(
        candidate.evicts().as_deref(),
        Some("a"),
        "costs no availability"
    );
}

/// The controller keeps as many pods as its own strategy requires (SAFE-12).
#[test]
fn stuck_rollout_of_a_controller_is_reported_and_not_repeated() {
    let stuck = |unready: &[(&str, i64)]| {
        Row {
            active: 3,
            total: 3,
            availability: not_ready(unready),
            previous: requested(1, -700),
            ..Row::default()
        }
        .each_object(|object| {
            object.rolling = true;
            object.roll_value = Some(DESIRED_HASH.to_owned());
        })
    };
    assert!(stuck(&[("new", -690)]).stalls());
    let progressing = stuck(&[("new", -10)]);
    assert_eq!(progressing.waits(), Some(Reason::RolloutInProgress));
}

/// SAFE-13
#[test]
fn unready_pod_with_an_older_sidecar_is_replaced_even_during_a_rollout() {
    let outdated = PodToReplace {
        sidecar: SidecarState::Outdated,
        ..uninjected("new", -690)
    };
    let stuck = |unready: &[(&str, i64)]| {
        Row {
            outdated: vec![
                uninjected("a", -20_000),
                uninjected("b", -20_000),
                outdated.clone(),
            ],
            active: 3,
            total: 3,
            availability: not_ready(unready),
            ..Row::default()
        }
        .each_object(|object| {
            object.rolling = true;
            object.roll_value = Some("of an older spec".to_owned());
        })
    };
    assert_eq!(stuck(&[("new", -690)]).evicts().as_deref(), Some("new"));
    let replaced = stuck(&[("new", -690), ("today", -1)]);
    assert_eq!(
        replaced.waits(),
        Some(Reason::RolloutInProgress),
        "one by one"
    );
    assert_eq!(
        stuck(&[("a", -690)]).waits(),
        Some(Reason::RolloutInProgress),
        "not caused by us"
    );
}

/// SAFE-13
#[test]
fn stateful_set_is_not_rolled_while_one_of_its_pods_is_unready() {
    let stateful_set = |desired, ready| {
        Row::default().each_object(|object| {
            object.deletes_pod_first = true;
            object.desired_replicas = Some(desired);
            object.ready = ready;
        })
    };
    assert_eq!(stateful_set(3, 2).waits(), Some(Reason::RolloutWaiting));
    assert_eq!(
        stateful_set(3, 3).annotates().as_deref(),
        Some(DESIRED_HASH)
    );
    assert_eq!(
        stateful_set(3, 0).annotates().as_deref(),
        Some(DESIRED_HASH),
        "no ready pod to lose"
    );
}

/// SAFE-17
#[test]
fn outdated_pods_are_evicted_where_a_rollout_would_replace_as_many_current_ones() {
    let with = |outdated: usize, reduces_ready| {
        let outdated = (0..outdated).map(|number| uninjected(&number.to_string(), -20_000));
        Row {
            outdated: outdated.collect(),
            active: 4,
            total: 4,
            ..Row::default()
        }
        .each_object(|object| object.reduces_ready = reduces_ready)
    };
    assert_eq!(with(2, true).evicts().as_deref(), Some("1"));
    assert_eq!(with(3, true).annotates().as_deref(), Some(DESIRED_HASH));
    let surges = with(2, false);
    assert_eq!(
        surges.annotates().as_deref(),
        Some(DESIRED_HASH),
        "costs no pod"
    );
    let rolling = with(2, true).each_object(|object| object.rolling = true);
    assert_eq!(rolling.waits(), Some(Reason::RolloutInProgress));
    let owner = Row {
        method: RolloutMethod::Annotate(deployment(), vec!["metadata", "annotations"]),
        ..with(2, true)
    };
    assert!(
        owner.annotates().is_some(),
        "an annotation on the owner is preferred"
    );
}

/// ROLL-4 (c): an Event of a pod is no reason to request it again.
#[test]
fn refused_eviction_is_not_requested_again_before_its_time() {
    let row = |method, now| Row {
        method,
        refused_eviction: Some(RefusedEviction {
            message: "the budget allows none".to_owned(),
            retry_at: at(100),
        }),
        now,
        ..Row::default()
    };
    let waits = RolloutDecision::Wait {
        message: "the budget allows none".to_owned(),
        requeue_after: Duration::from_secs(1),
    };
    assert_eq!(row(RolloutMethod::Evict, 99).decide(), waits);
    assert_eq!(
        row(RolloutMethod::Evict, 100).evicts().as_deref(),
        Some("b")
    );
    let annotates = row(RolloutMethod::AnnotateTemplate(vec![deployment()]), 99);
    assert!(annotates.annotates().is_some(), "no eviction");
}
