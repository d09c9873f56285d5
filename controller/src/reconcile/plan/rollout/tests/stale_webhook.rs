//! Replacements that a replica of the webhook reviewed before it had read the actor's current state (ROLL-5).

use std::time::Duration;

use asya_shared::api::RolloutStatus;
use asya_shared::resolve::RolloutMethod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{DESIRED_HASH, Row, at, requested, uninjected};
use crate::reconcile::model::availability::{Availability, UnreadyPod};
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState};
use crate::reconcile::plan::rollout::inputs::RolloutDecision;

fn replacement(name: &str, created: i64, sidecar: SidecarState) -> PodToReplace {
    PodToReplace {
        sidecar,
        ..uninjected(name, created)
    }
}

/// A rollout that was requested at `since`, when the newest pod to be replaced was older.
fn requested_at(since: i64, tries: i32) -> Option<RolloutStatus> {
    requested(tries, since).map(|previous| RolloutStatus {
        newest_pod: Some(Time(at(-20_000))),
        ..previous
    })
}

fn annotated(outdated: Vec<PodToReplace>, since: i64, tries: i32) -> Row {
    let row = Row {
        outdated,
        previous: requested_at(since, tries),
        ..Row::default()
    };
    row.each_object(|object| object.roll_value = Some(DESIRED_HASH.to_owned()))
}

fn wait_of(row: &Row) -> Option<Duration> {
    match row.decide() {
        RolloutDecision::Wait { requeue_after, .. } => Some(requeue_after),
        _ => None,
    }
}

/// ROLL-5, SAFE-1
#[test]
fn rollout_is_tried_again_when_every_replica_of_the_webhook_knows_that_a_dry_run_has_passed() {
    let withheld = || {
        vec![
            replacement("a", -9, SidecarState::NotInjectedYet),
            replacement("b", -8, SidecarState::NotInjectedYet),
        ]
    };
    let older = || vec![replacement("a", -9, SidecarState::Outdated)];
    for outdated in [withheld, older] {
        assert_eq!(
            wait_of(&annotated(outdated(), -10, 1)),
            Some(Duration::from_secs(20))
        );
        assert_eq!(
            annotated(outdated(), -30, 1).annotates(),
            Some(format!("{DESIRED_HASH}-1"))
        );
        assert!(
            annotated(outdated(), -20, 2).halts(),
            "in vain a second time"
        );
    }
    let other = replacement("c", -7, SidecarState::Missing);
    let with_other = withheld().into_iter().chain([other]).collect();
    assert!(annotated(with_other, -10, 1).halts(), "two causes");
}

/// ROLL-5, SAFE-13
#[test]
fn next_pod_is_evicted_when_every_replica_of_the_webhook_knows_that_a_dry_run_has_passed() {
    let evicted = |outdated, since, earlier| Row {
        outdated,
        previous: requested_at(since, 0).map(|previous| RolloutStatus {
            uninjected_replacements: earlier,
            ..previous
        }),
        method: RolloutMethod::Evict,
        ..Row::default()
    };
    let withheld = || {
        vec![
            uninjected("a", -20_000),
            replacement("b", -9, SidecarState::NotInjectedYet),
        ]
    };
    assert_eq!(
        wait_of(&evicted(withheld(), -10, 0)),
        Some(Duration::from_secs(20))
    );
    assert!(evicted(withheld(), -30, 0).evicts().is_some());
    assert!(evicted(withheld(), -30, 1).halts(), "in vain a second time");

    let unready = |outdated| Row {
        availability: Availability {
            unready: vec![UnreadyPod {
                name: "a".into(),
                uid: "a".into(),
                created: None,
            }],
            ..Availability::default()
        },
        ..evicted(outdated, -10, 0)
    };
    let older = replacement("a", -20_000, SidecarState::Outdated);
    let newer = replacement("b", -9, SidecarState::NotInjectedYet);
    assert_eq!(
        unready(vec![older, newer.clone()]).evicts().as_deref(),
        Some("a"),
        "it may be its sidecar that keeps the pod from getting ready"
    );
    let again = replacement("a", -9, SidecarState::Outdated);
    assert!(wait_of(&unready(vec![again, newer])).is_some());
}
