use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::decide;
use super::inputs::{RolloutAction, RolloutDecision, RolloutInputs};
use crate::binding::rollout_slots::RefusedEviction;
use crate::fault::Reason;
use crate::reconcile::contention::{ConflictCount, ContentionState, SpecRevision};
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::rollout::consecutive_uninjected;
use crate::reconcile::model::target_pods::{PodToReplace, SidecarState};

mod one_by_one;
mod reverted;
mod stale_webhook;

const DESIRED_HASH: &str = "0123456789abcdef";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

/// A pod without the sidecar, created at this second.
fn uninjected(name: &str, created: i64) -> PodToReplace {
    PodToReplace {
        name: name.into(),
        uid: name.into(),
        created: Some(Time(at(created))),
        sidecar: SidecarState::Missing,
    }
}

fn deployment() -> ObjectRef {
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("web-uid".to_owned()),
    }
}

/// A Deployment of two pods without the sidecar, in a binding that began a while ago.
#[expect(clippy::struct_excessive_bools, reason = "the inputs of the decision")]
struct Row {
    rollout_policy: BindingRollout,
    roll_now: bool,
    in_effect: bool,
    has_url: bool,
    outdated: Vec<PodToReplace>,
    active: i32,
    /// Pods that the API server lists, if they differ from those that the watch has reported.
    listed: Option<i32>,
    total: i32,
    availability: Availability,
    limit: Option<Duration>,
    method: RolloutMethod,
    unknown_owner: bool,
    objects: Vec<TargetObject>,
    workload_specs_hash: &'static str,
    blocking_pdb: Option<&'static str>,
    has_slot: bool,
    refused_eviction: Option<RefusedEviction>,
    previous: Option<RolloutStatus>,
    injection_verified: bool,
    contention: ContentionState,
    generation: i64,
    now: i64,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            rollout_policy: BindingRollout::Always,
            roll_now: false,
            in_effect: true,
            has_url: true,
            outdated: vec![uninjected("a", -20_000), uninjected("b", -20_000)],
            active: 2,
            listed: None,
            total: 2,
            availability: Availability::default(),
            limit: Some(Duration::from_mins(10)),
            method: RolloutMethod::AnnotateTemplate(vec![deployment()]),
            unknown_owner: false,
            objects: vec![TargetObject {
                object: deployment(),
                ..TargetObject::default()
            }],
            workload_specs_hash: "spec",
            blocking_pdb: None,
            has_slot: true,
            refused_eviction: None,
            previous: None,
            injection_verified: false,
            contention: ContentionState::Uncontested,
            generation: 1,
            now: 0,
        }
    }
}

impl Row {
    fn decide(&self) -> RolloutDecision {
        let availability = Availability {
            active: self.listed.unwrap_or(self.active),
            ..self.availability.clone()
        };
        decide(&RolloutInputs {
            rollout_policy: self.rollout_policy,
            roll_now: self.roll_now,
            in_effect: self.in_effect,
            has_url: self.has_url,
            desired_hash: DESIRED_HASH,
            outdated: &self.outdated,
            active: self.active,
            total: self.total,
            availability: &availability,
            limit: self.limit,
            method: &self.method,
            unknown_owner: self.unknown_owner,
            objects: &self.objects,
            workload_specs_hash: self.workload_specs_hash,
            blocking_pdb: self.blocking_pdb,
            has_slot: self.has_slot,
            refused_eviction: self.refused_eviction.as_ref(),
            previous: self.previous.as_ref(),
            injection_verified: self.injection_verified,
            contention: &self.contention,
            generation: self.generation,
            now: at(self.now),
        })
    }

    fn waits(&self) -> Option<Reason> {
        match self.decide() {
            RolloutDecision::InProgress => Some(Reason::RolloutInProgress),
            RolloutDecision::Wait {
                message,
                requeue_after,
            } => {
                assert!(!message.is_empty() && !requeue_after.is_zero());
                Some(Reason::RolloutWaiting)
            }
            RolloutDecision::AwaitSlot => Some(Reason::RolloutWaiting),
            _ => None,
        }
    }

    fn annotates(&self) -> Option<String> {
        match self.decide() {
            RolloutDecision::Act(RolloutAction::Annotate(value)) => Some(value),
            _ => None,
        }
    }

    fn evicts(&self) -> Option<String> {
        match self.decide() {
            RolloutDecision::Act(RolloutAction::Evict(pod)) => Some(pod.name.to_string()),
            _ => None,
        }
    }

    /// The `yields` flag, if the decision is a conflict.
    fn conflicts(&self) -> Option<bool> {
        match self.decide() {
            RolloutDecision::RecordConflict(conflict) => {
                assert_eq!(conflict.object, deployment());
                Some(conflict.yields)
            }
            _ => None,
        }
    }

    fn stalls(&self) -> bool {
        match self.decide() {
            RolloutDecision::Stalled(text) => text.contains("600 s (spec.timeout.progress)"),
            _ => false,
        }
    }

    fn halts(&self) -> bool {
        matches!(self.decide(), RolloutDecision::Halted(_))
    }

    fn each_object(mut self, change: impl Fn(&mut TargetObject)) -> Self {
        self.objects.iter_mut().for_each(change);
        self
    }
}

/// A rollout that was requested this many times, last at `since`.
#[expect(clippy::unnecessary_wraps, reason = "rows hold an Option")]
fn requested(tries: i32, since: i64) -> Option<RolloutStatus> {
    Some(RolloutStatus {
        value: DESIRED_HASH.to_owned(),
        since: Some(Time(at(since))),
        newest_pod: None,
        tries,
        pods: Some(2),
        uninjected_replacements: 0,
        halted: false,
        stalled: false,
        generation: 1,
        workload_specs_hash: "spec".to_owned(),
    })
}

/// ROLL-1, ROLL-2 (a), ROLL-3, ROLL-7, ROLL-8 (e)
#[test]
fn pods_without_the_sidecar_are_rolled_by_one_annotation_unless_rollout_is_on_restart() {
    assert_eq!(Row::default().annotates().as_deref(), Some(DESIRED_HASH));
    let injected = Row {
        outdated: Vec::new(),
        ..Row::default()
    };
    assert_eq!(injected.decide(), RolloutDecision::NotNeeded);
    for row in [
        Row {
            rollout_policy: BindingRollout::OnRestart,
            ..Row::default()
        },
        Row {
            in_effect: false,
            ..Row::default()
        },
        Row {
            has_url: false,
            ..Row::default()
        },
    ] {
        assert_eq!(row.decide(), RolloutDecision::NotNeeded);
    }
    let roll_now = Row {
        rollout_policy: BindingRollout::OnRestart,
        roll_now: true,
        ..Row::default()
    };
    assert_eq!(roll_now.annotates().as_deref(), Some(DESIRED_HASH));
}

/// ROLL-2 (b)
#[test]
fn target_without_pods_is_verified_by_one_dry_run() {
    let empty = |injection_verified| Row {
        outdated: Vec::new(),
        active: 0,
        total: 0,
        injection_verified,
        ..Row::default()
    };
    assert_eq!(
        empty(false).decide(),
        RolloutDecision::Act(RolloutAction::VerifyInjection)
    );
    assert_eq!(empty(true).decide(), RolloutDecision::NotNeeded);
}

/// ROLL-1, ROLL-2 (c, d, e), ROLL-4 (a)
#[test]
fn nothing_is_rolled_during_another_rollout_or_without_budget_or_slot() {
    use Reason::{RolloutInProgress, RolloutWaiting};
    let row = Row::default;
    for (row, reason) in [
        (
            row().each_object(|object| object.rolling = true),
            RolloutInProgress,
        ),
        (
            Row {
                total: 3,
                ..Row::default()
            },
            RolloutInProgress,
        ),
        (
            row().each_object(|object| object.paused = true),
            RolloutWaiting,
        ),
        (
            Row {
                has_slot: false,
                ..Row::default()
            },
            RolloutWaiting,
        ),
        (
            Row {
                blocking_pdb: Some("all"),
                ..Row::default()
            }
            .each_object(|object| object.reduces_ready = true),
            RolloutWaiting,
        ),
        (
            Row {
                previous: requested(1, -2),
                ..Row::default()
            }
            .each_object(|object| object.roll_value = Some(DESIRED_HASH.to_owned())),
            RolloutInProgress,
        ),
    ] {
        assert_eq!(row.waits(), Some(reason));
    }
    let surges = Row {
        blocking_pdb: Some("all"),
        ..Row::default()
    };
    assert_eq!(
        surges.annotates().as_deref(),
        Some(DESIRED_HASH),
        "no pod is deleted first"
    );
}

/// ROLL-3, ROLL-5
#[test]
fn annotation_without_effect_is_changed_and_two_in_a_minute_halt_the_rollout() {
    let without_effect = |tries, since| {
        Row {
            previous: requested(tries, since),
            ..Row::default()
        }
        .each_object(|object| object.roll_value = Some(DESIRED_HASH.to_owned()))
    };
    assert_eq!(
        without_effect(1, -20).annotates(),
        Some(format!("{DESIRED_HASH}-1"))
    );
    let third = without_effect(2, -100)
        .each_object(|object| object.roll_value = Some(format!("{DESIRED_HASH}-1")));
    assert_eq!(third.annotates(), Some(format!("{DESIRED_HASH}-2")));
    assert!(without_effect(2, -20).halts());
    assert!(without_effect(5, -10_000).halts());

    let halted = |generation, workload_specs_hash| Row {
        previous: requested(2, -10_000).map(|previous| RolloutStatus {
            halted: true,
            ..previous
        }),
        generation,
        workload_specs_hash,
        ..Row::default()
    };
    assert!(halted(1, "spec").halts(), "survives a restart");
    assert!(halted(2, "spec").annotates().is_some(), "actor changed");
    assert!(halted(1, "other").annotates().is_some(), "target changed");
}

/// The earlier replacement was itself evicted (ROLL-5).
#[test]
fn two_consecutive_uninjected_replacements_of_evicted_pods_halt_the_rollout() {
    let evicted = |earlier, outdated| Row {
        previous: requested(3, -100).map(|previous| RolloutStatus {
            uninjected_replacements: earlier,
            ..previous
        }),
        method: RolloutMethod::Evict,
        outdated,
        ..Row::default()
    };
    let old = || vec![uninjected("a", -20_000), uninjected("b", -20_000)];
    assert!(
        evicted(1, old()).evicts().is_some(),
        "the last replacement has the sidecar"
    );
    let replaced = || vec![uninjected("a", -20_000), uninjected("c", -50)];
    assert!(
        evicted(0, replaced()).evicts().is_some(),
        "one does not count"
    );
    assert!(evicted(1, replaced()).halts());
    let count = |earlier, outdated: &[PodToReplace]| {
        consecutive_uninjected(
            outdated,
            &RolloutStatus {
                uninjected_replacements: earlier,
                ..requested(3, -100).unwrap()
            },
        )
    };
    assert_eq!(count(1, &replaced()), 2);
    assert_eq!(count(1, &old()), 0, "not consecutive");
}

/// ROLL-5
#[test]
fn two_consecutive_uninjected_replacements_halt_the_rollout() {
    let with = |outdated| Row {
        outdated,
        previous: requested(1, -20),
        ..Row::default()
    };
    assert!(
        with(vec![
            uninjected("a", -50),
            uninjected("b", -10),
            uninjected("c", -9)
        ])
        .halts()
    );
    assert!(!with(vec![uninjected("a", -50), uninjected("b", -10)]).halts());
    let outdated = PodToReplace {
        sidecar: SidecarState::Outdated,
        ..uninjected("c", -5)
    };
    assert!(!with(vec![uninjected("a", -11), uninjected("b", -10), outdated]).halts());
    let stripped = |name| PodToReplace {
        sidecar: SidecarState::RemovedByOther,
        ..uninjected(name, -20)
    };
    assert!(with(vec![stripped("a"), stripped("b")]).halts());
    assert!(!with(vec![uninjected("a", -20), uninjected("b", -20)]).halts());
}
