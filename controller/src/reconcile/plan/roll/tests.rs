use std::time::Duration;

use asya_shared::api::{BindingRollout, RolloutStatus};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::facts::{Act, Rolling, RolloutFacts};
use super::{bare_in_a_row, decide};
use crate::fault::Reason;
use crate::reconcile::contention::{Losses, Specs, State};
use crate::reconcile::model::bound_pods::{Lacks, OutdatedPod};
use crate::reconcile::model::rollout::Availability;
use crate::reconcile::model::rollout::Live;

mod one_by_one;

const WANTED: &str = "0123456789abcdef";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

/// A pod without the sidecar that was created then.
fn bare(name: &str, made: i64) -> OutdatedPod {
    OutdatedPod {
        name: name.into(),
        uid: name.into(),
        created: Some(Time(at(made))),
        lacks: Lacks::Any,
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
#[expect(clippy::struct_excessive_bools, reason = "they are those of the facts")]
struct Row {
    rollout: BindingRollout,
    at_once: bool,
    bound: bool,
    has_url: bool,
    lacking: Vec<OutdatedPod>,
    matched: i32,
    total: i32,
    availability: Availability,
    limit: Option<Duration>,
    roll: Roll,
    unknown_owner: bool,
    live: Vec<Live>,
    target: &'static str,
    budget: Option<&'static str>,
    has_slot: bool,
    before: Option<RolloutStatus>,
    proved: bool,
    conflict: State,
    generation: i64,
    now: i64,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            rollout: BindingRollout::Always,
            at_once: false,
            bound: true,
            has_url: true,
            lacking: vec![bare("a", -20_000), bare("b", -20_000)],
            matched: 2,
            total: 2,
            availability: Availability::default(),
            limit: Some(Duration::from_mins(10)),
            roll: Roll::AnnotateTemplate(vec![deployment()]),
            unknown_owner: false,
            live: vec![Live {
                object: deployment(),
                ..Live::default()
            }],
            target: "spec",
            budget: None,
            has_slot: true,
            before: None,
            proved: false,
            conflict: State::Idle,
            generation: 1,
            now: 0,
        }
    }
}

impl Row {
    fn decide(&self) -> Rolling {
        decide(&RolloutFacts {
            rollout: self.rollout,
            at_once: self.at_once,
            bound: self.bound,
            has_url: self.has_url,
            wanted: WANTED,
            lacking: &self.lacking,
            matched: self.matched,
            total: self.total,
            availability: &self.availability,
            limit: self.limit,
            roll: &self.roll,
            unknown_owner: self.unknown_owner,
            live: &self.live,
            target: self.target,
            budget: self.budget,
            has_slot: self.has_slot,
            before: self.before.as_ref(),
            proved: self.proved,
            conflict: &self.conflict,
            generation: self.generation,
            now: at(self.now),
        })
    }

    fn waits(&self) -> Option<Reason> {
        match self.decide() {
            Rolling::Wait(reason, text, wait) => {
                assert!(!text.is_empty() && !wait.is_zero());
                Some(reason)
            }
            _ => None,
        }
    }

    fn annotates(&self) -> Option<String> {
        match self.decide() {
            Rolling::Act(Act::Annotate(value)) => Some(value),
            _ => None,
        }
    }

    fn evicts(&self) -> Option<String> {
        match self.decide() {
            Rolling::Act(Act::Evict(pod)) => Some(pod.name.to_string()),
            _ => None,
        }
    }

    /// The `last` flag, if the decision is a loss.
    fn loses(&self) -> Option<bool> {
        match self.decide() {
            Rolling::Lost(lost) => {
                assert_eq!((lost.object, &*lost.specs.target), (deployment(), "spec"));
                Some(lost.last)
            }
            _ => None,
        }
    }

    fn stalls(&self) -> bool {
        match self.decide() {
            Rolling::Stall(text) => text.contains("600 s (spec.timeout.progress)"),
            _ => false,
        }
    }

    fn halts(&self) -> bool {
        matches!(self.decide(), Rolling::Halt(_))
    }

    fn live(mut self, change: impl Fn(&mut Live)) -> Self {
        self.live.iter_mut().for_each(change);
        self
    }
}

/// A rollout that was requested this many times, the last time at `since`.
#[expect(clippy::unnecessary_wraps, reason = "rows have it or not")]
fn asked(tries: i32, since: i64) -> Option<RolloutStatus> {
    Some(RolloutStatus {
        value: WANTED.to_owned(),
        since: Some(Time(at(since))),
        tries,
        pods: Some(2),
        bare: 0,
        halted: false,
        stalled: false,
        generation: 1,
        target: "spec".to_owned(),
    })
}

/// ROLL-1, ROLL-3, ROLL-7
#[test]
fn pods_without_the_sidecar_are_rolled_by_one_annotation_unless_rollout_is_on_restart() {
    assert_eq!(Row::default().annotates().as_deref(), Some(WANTED));
    let complete = Row {
        lacking: Vec::new(),
        ..Row::default()
    };
    assert_eq!(complete.decide(), Rolling::Rest);
    for row in [
        Row {
            rollout: BindingRollout::OnRestart,
            ..Row::default()
        },
        Row {
            bound: false,
            ..Row::default()
        },
        Row {
            has_url: false,
            ..Row::default()
        },
    ] {
        assert_eq!(row.decide(), Rolling::Rest);
    }
    let at_once = Row {
        rollout: BindingRollout::OnRestart,
        at_once: true,
        ..Row::default()
    };
    assert_eq!(at_once.annotates().as_deref(), Some(WANTED));
}

/// ROLL-2
#[test]
fn target_without_pods_is_proved_by_one_dry_run() {
    let empty = |proved| Row {
        lacking: Vec::new(),
        matched: 0,
        total: 0,
        proved,
        ..Row::default()
    };
    assert_eq!(empty(false).decide(), Rolling::Act(Act::Prove));
    assert_eq!(empty(true).decide(), Rolling::Rest);
}

/// ROLL-1, ROLL-2, ROLL-4
#[test]
fn nothing_is_rolled_during_another_rollout_or_without_budget_or_slot() {
    use Reason::{RolloutInProgress, RolloutWaiting};
    let row = Row::default;
    for (waits, reason) in [
        (row().live(|it| it.rolling = true), RolloutInProgress),
        (
            Row {
                total: 3,
                ..Row::default()
            },
            RolloutInProgress,
        ),
        (row().live(|it| it.paused = true), RolloutWaiting),
        (
            Row {
                has_slot: false,
                ..Row::default()
            },
            RolloutWaiting,
        ),
        (
            Row {
                budget: Some("all"),
                ..Row::default()
            }
            .live(|it| it.lowers = true),
            RolloutWaiting,
        ),
        (
            Row {
                before: asked(1, -2),
                ..Row::default()
            }
            .live(|it| it.value = Some(WANTED.to_owned())),
            RolloutInProgress,
        ),
    ] {
        assert_eq!(waits.waits(), Some(reason));
    }
    let surges = Row {
        budget: Some("all"),
        ..Row::default()
    };
    assert_eq!(
        surges.annotates().as_deref(),
        Some(WANTED),
        "no pod goes first"
    );
}

/// ROLL-3, ROLL-5
#[test]
fn annotation_without_effect_is_changed_and_two_in_a_minute_halt_the_rollout() {
    let again = |tries, since| {
        Row {
            before: asked(tries, since),
            ..Row::default()
        }
        .live(|it| it.value = Some(WANTED.to_owned()))
    };
    assert_eq!(again(1, -20).annotates(), Some(format!("{WANTED}-1")));
    let third = again(2, -100).live(|it| it.value = Some(format!("{WANTED}-1")));
    assert_eq!(third.annotates(), Some(format!("{WANTED}-2")));
    assert!(again(2, -20).halts());
    assert!(again(5, -10_000).halts());

    let halted = |generation, target| Row {
        before: asked(2, -10_000).map(|before| RolloutStatus {
            halted: true,
            ..before
        }),
        generation,
        target,
        ..Row::default()
    };
    assert!(halted(1, "spec").halts(), "also after a restart");
    assert!(halted(2, "spec").annotates().is_some(), "another actor");
    assert!(halted(1, "other").annotates().is_some(), "another target");
}

/// The earlier replacement was itself evicted (ROLL-5).
#[test]
fn two_bare_replacements_of_evicted_pods_in_a_row_halt_the_rollout() {
    let evicted = |bare, lacking| Row {
        before: asked(3, -100).map(|before| RolloutStatus { bare, ..before }),
        roll: Roll::Evict,
        lacking,
        ..Row::default()
    };
    let old = || vec![bare("a", -20_000), bare("b", -20_000)];
    assert!(evicted(1, old()).evicts().is_some(), "the last one has it");
    let again = || vec![bare("a", -20_000), bare("c", -50)];
    assert!(evicted(0, again()).evicts().is_some(), "one may be chance");
    assert!(evicted(1, again()).halts());
    let counted = |bare, lacking: &[OutdatedPod]| {
        bare_in_a_row(
            lacking,
            &RolloutStatus {
                bare,
                ..asked(3, -100).unwrap()
            },
        )
    };
    assert_eq!(counted(1, &again()), 2);
    assert_eq!(counted(1, &old()), 0, "not in a row");
}

/// ROLL-5
#[test]
fn two_bare_replacements_in_a_row_halt_the_rollout() {
    let with = |lacking| Row {
        lacking,
        before: asked(1, -20),
        ..Row::default()
    };
    assert!(with(vec![bare("a", -50), bare("b", -10), bare("c", -9)]).halts());
    assert!(!with(vec![bare("a", -50), bare("b", -10)]).halts());
    let outdated = OutdatedPod {
        lacks: Lacks::Today,
        ..bare("c", -5)
    };
    assert!(!with(vec![bare("a", -11), bare("b", -10), outdated]).halts());
    let stripped = |name| OutdatedPod {
        lacks: Lacks::Given,
        ..bare(name, -20)
    };
    assert!(with(vec![stripped("a"), stripped("b")]).halts());
    assert!(!with(vec![bare("a", -20), bare("b", -20)]).halts());
}

/// Row "unknown" of the table in docs/spec/binding.md.
#[test]
fn unknown_owner_that_takes_the_annotation_back_leads_to_eviction() {
    let reverted = |conflict| Row {
        unknown_owner: true,
        before: asked(1, -20),
        conflict,
        ..Row::default()
    };
    assert_eq!(reverted(State::Idle).loses(), Some(true), "the last try");
    let stopped = |target: &str| {
        State::Stopped(Specs {
            generation: 1,
            target: target.to_owned(),
        })
    };
    let evicts = Row {
        before: None,
        ..reverted(stopped("spec"))
    };
    assert_eq!(evicts.evicts().as_deref(), Some("b"));
    let other = Row {
        before: None,
        ..reverted(stopped("other"))
    };
    assert_eq!(other.annotates().as_deref(), Some(WANTED), "another spec");
}

/// CONF-2, CONF-6
#[test]
fn annotation_removed_while_pods_lack_the_sidecar_is_a_loss_and_rewritten_with_backoff() {
    let gone = |conflict| Row {
        before: asked(1, -1),
        conflict,
        ..Row::default()
    };
    assert_eq!(gone(State::Idle).loses(), Some(false), "at once");
    let one = Losses::new(1).unwrap();
    assert_eq!(gone(State::Held(one)).loses(), Some(false));
    let other = gone(State::Idle).live(|it| it.value = Some("somebody's".to_owned()));
    assert_eq!(other.loses(), Some(false), "another value");

    let stands = gone(State::Idle).live(|it| it.value = Some(format!("{WANTED}-1")));
    assert_eq!(stands.waits(), Some(Reason::RolloutInProgress));
    let missed_by_nobody = Row {
        lacking: Vec::new(),
        ..gone(State::Idle)
    };
    assert_eq!(missed_by_nobody.decide(), Rolling::Rest);
    let of_another_spec = Row {
        before: asked(1, -100).map(|before| RolloutStatus {
            value: "another".to_owned(),
            ..before
        }),
        ..Row::default()
    }
    .live(|it| it.value = Some("another".to_owned()));
    assert_eq!(of_another_spec.annotates().as_deref(), Some(WANTED));

    let waiting = |until, now| Row {
        before: None,
        conflict: State::Waiting(one, at(until)),
        now,
        ..Row::default()
    };
    assert_eq!(waiting(10, 9).waits(), Some(Reason::RolloutWaiting));
    assert_eq!(waiting(10, 10).annotates().as_deref(), Some(WANTED));
    let rolls = waiting(10, 11).live(|it| it.rolling = true);
    assert_eq!(
        rolls.waits(),
        Some(Reason::RolloutInProgress),
        "not before the last rollout has ended"
    );
}

/// CONF-2, CONF-6
#[test]
fn annotation_lost_too_often_is_left_until_a_spec_changes() {
    let stopped = |generation, target| Row {
        conflict: State::Stopped(Specs {
            generation: 1,
            target: "spec".to_owned(),
        }),
        generation,
        target,
        ..Row::default()
    };
    assert_eq!(stopped(1, "spec").decide(), Rolling::Leave);
    assert!(stopped(2, "spec").annotates().is_some(), "another actor");
    assert!(stopped(1, "other").annotates().is_some(), "another target");
    let by_hand = Row {
        rollout: BindingRollout::OnRestart,
        ..stopped(1, "spec")
    };
    assert_eq!(by_hand.decide(), Rolling::Rest, "nobody needs it any more");
}
