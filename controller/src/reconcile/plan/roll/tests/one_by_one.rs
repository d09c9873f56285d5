//! Eviction one by one, and rollouts that make no progress.

use asya_shared::resolve::Roll;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Row, WANTED, asked, at, bare, deployment};
use crate::fault::Reason;
use crate::reconcile::model::bound_pods::{Lacks, OutdatedPod};
use crate::reconcile::model::rollout::{Availability, UnreadyPod};

/// ROLL-4, ROLL-6
#[test]
fn pods_are_evicted_one_by_one_where_no_annotation_rolls_them() {
    let ray = || Row {
        roll: Roll::Evict,
        ..Row::default()
    };
    assert_eq!(ray().evicts().as_deref(), Some("b"));
    assert_eq!(
        Row::default()
            .live(|it| it.by_eviction = true)
            .evicts()
            .as_deref(),
        Some("b"),
        "OnDelete or partition"
    );
    let between = |matched, total, unready: &[(&str, i64)], since| Row {
        matched,
        total,
        availability: not_ready(unready),
        lacking: vec![bare("a", -50)],
        before: asked(1, since),
        ..ray()
    };
    let waits = Some(Reason::RolloutInProgress);
    assert_eq!(between(1, 2, &[], -1).waits(), waits, "one is going");
    let unseen = Row {
        availability: Availability {
            going: true,
            ..Availability::default()
        },
        ..between(2, 2, &[], -1)
    };
    assert_eq!(unseen.waits(), waits, "which no watch has shown yet");
    assert_eq!(
        between(1, 1, &[], -1).waits(),
        waits,
        "its replacement has to come"
    );
    let starts = between(2, 2, &[("b", -1)], -1);
    assert_eq!(starts.waits(), waits, "and to be ready");
    assert_eq!(between(2, 2, &[], -1).evicts().as_deref(), Some("a"));
}

/// Pods that are not ready, and when they were created.
fn not_ready(pods: &[(&str, i64)]) -> Availability {
    let unready = pods.iter().map(|(name, made)| UnreadyPod {
        name: (*name).into(),
        uid: (*name).into(),
        created: Some(Time(at(*made))),
    });
    Availability {
        unready: unready.collect(),
        ..Availability::default()
    }
}

/// SAFE-11, SAFE-12
#[test]
fn no_pod_is_evicted_while_a_replacement_is_missing_or_not_ready() {
    let evicted = |matched, unready: &[(&str, i64)], since| Row {
        roll: Roll::Evict,
        matched,
        total: matched,
        lacking: vec![bare("a", -20_000)],
        availability: not_ready(unready),
        before: asked(1, since),
        ..Row::default()
    };
    for (what, row) in [
        ("not ready", evicted(2, &[("b", -601)], -602)),
        ("missing", evicted(1, &[], -601)),
    ] {
        assert!(row.stalls(), "{what}");
        let patient = Row { limit: None, ..row };
        assert_eq!(patient.waits(), Some(Reason::RolloutInProgress), "{what}");
    }
    let late = evicted(2, &[("b", -599)], -602);
    assert_eq!(late.waits(), Some(Reason::RolloutInProgress));
    let at_last = evicted(2, &[], -100_000);
    assert_eq!(at_last.evicts().as_deref(), Some("a"), "it became ready");

    let ill = Row {
        before: None,
        ..evicted(2, &[("b", -100_000)], 0)
    };
    assert_eq!(ill.waits(), Some(Reason::RolloutWaiting), "not by us");
    let of_target = Row {
        before: None,
        ..evicted(2, &[("a", -100_000)], 0)
    };
    assert_eq!(of_target.evicts().as_deref(), Some("a"), "costs nothing");
}

/// The controller keeps as many pods as its own strategy requires (SAFE-12).
#[test]
fn stuck_rollout_of_a_controller_is_reported_and_not_repeated() {
    let stuck = |unready: &[(&str, i64)]| {
        Row {
            matched: 3,
            total: 3,
            availability: not_ready(unready),
            before: asked(1, -700),
            ..Row::default()
        }
        .live(|it| {
            it.rolling = true;
            it.value = Some(WANTED.to_owned());
        })
    };
    assert!(stuck(&[("new", -690)]).stalls());
    let gets_on = stuck(&[("new", -10)]);
    assert_eq!(gets_on.waits(), Some(Reason::RolloutInProgress));
}

/// SAFE-13
#[test]
fn pod_kept_unready_by_an_older_sidecar_is_replaced_however_its_target_rolls() {
    let outdated = OutdatedPod {
        lacks: Lacks::Today,
        ..bare("new", -690)
    };
    let stuck = |unready: &[(&str, i64)]| {
        Row {
            lacking: vec![bare("a", -20_000), bare("b", -20_000), outdated.clone()],
            matched: 3,
            total: 3,
            availability: not_ready(unready),
            ..Row::default()
        }
        .live(|it| {
            it.rolling = true;
            it.value = Some("of an older spec".to_owned());
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
        "not by us"
    );
}

/// SAFE-13
#[test]
fn stateful_set_is_not_rolled_while_a_pod_of_it_is_not_ready() {
    let set = |wanted, ready| {
        Row::default().live(|it| {
            it.drains_first = true;
            it.wanted = Some(wanted);
            it.ready = ready;
        })
    };
    assert_eq!(set(3, 2).waits(), Some(Reason::RolloutWaiting));
    assert_eq!(set(3, 3).annotates().as_deref(), Some(WANTED));
    assert_eq!(
        set(3, 0).annotates().as_deref(),
        Some(WANTED),
        "none to lose"
    );
}

/// SAFE-17
#[test]
fn outdated_pods_are_evicted_where_a_rollout_would_replace_as_many_current_ones() {
    let with = |lacking: usize, lowers| {
        let lacking = (0..lacking).map(|it| bare(&it.to_string(), -20_000));
        Row {
            lacking: lacking.collect(),
            matched: 4,
            total: 4,
            ..Row::default()
        }
        .live(|it| it.lowers = lowers)
    };
    assert_eq!(with(2, true).evicts().as_deref(), Some("1"));
    assert_eq!(with(3, true).annotates().as_deref(), Some(WANTED));
    let surges = with(2, false);
    assert_eq!(surges.annotates().as_deref(), Some(WANTED), "costs no pod");
    let rolls = with(2, true).live(|it| it.rolling = true);
    assert_eq!(rolls.waits(), Some(Reason::RolloutInProgress));
    let parent = Row {
        roll: Roll::Annotate(deployment(), vec!["metadata", "annotations"]),
        ..with(2, true)
    };
    assert!(
        parent.annotates().is_some(),
        "what its owner is told counts, too"
    );
}
