//! The handoff annotation makes the owner replace the target's pods, so what limits a rollout limits it, too.

use super::*;
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::{ObservedRollout, TargetObject};
use crate::reconcile::plan::autoscaler_handoff::{HandoffBlocker, slot_change};
use crate::reconcile::plan::rollout::params::SlotChange;

/// A target with this many pods, which may be rolled.
fn rollable(active: i32) -> ObservedRollout {
    ObservedRollout {
        has_slot: true,
        objects: vec![TargetObject {
            desired_replicas: Some(active),
            ready: active,
            ..TargetObject::default()
        }],
        availability: Availability {
            active,
            ..Availability::default()
        },
        ..ObservedRollout::default()
    }
}

fn with_rollout(is_set: bool, rollout: ObservedRollout) -> Observed {
    let mut observed = handed_off(is_set, &json!({}));
    observed.resolved_mut().rollout = Some(rollout);
    observed
}

/// SO-5, ROLL-2 (d, e), SAFE-13, SAFE-14, SAFE-15
#[test]
fn handoff_by_itself_waits_until_the_pods_may_be_replaced() {
    type Change = fn(&mut ObservedRollout);
    let cases: [(&str, Change, Option<&str>); 8] = [
        ("may be rolled", |_| (), None),
        (
            "rolling",
            |it| it.objects[0].rolling = true,
            Some("are being replaced"),
        ),
        (
            "terminating",
            |it| it.availability.has_terminating = true,
            Some("are being replaced"),
        ),
        (
            "all at once",
            |it| it.objects[0].recreates = true,
            Some("Recreate would stop all of its pods"),
        ),
        (
            "not all ready",
            |it| (it.objects[0].deletes_pod_first, it.objects[0].ready) = (true, 1),
            Some("would replace a ready one"),
        ),
        (
            "no disruption allowed",
            |it| {
                it.objects[0].reduces_ready = true;
                it.blocking_pdb = Some("models".to_owned());
            },
            Some("PodDisruptionBudget models"),
        ),
        (
            "surges",
            |it| it.blocking_pdb = Some("models".to_owned()),
            None,
        ),
        (
            "no slot",
            |it| it.has_slot = false,
            Some("maximum number of targets"),
        ),
    ];
    let no_rollout = Some(&RolloutDecision::NotNeeded);
    let annotate = RolloutDecision::Act(RolloutAction::Annotate("v".to_owned()));
    for (case, change, expected) in cases {
        for (is_set, written) in [
            (false, HandoffStep::Set(FieldDecision::Write)),
            (true, HandoffStep::Remove),
        ] {
            let scaling = if is_set { unscaled(true) } else { scaled(None) };
            let mut rollout = rollable(2);
            change(&mut rollout);
            let observed = with_rollout(is_set, rollout.clone());
            let step = plan(&observed, Some(&scaling), no_rollout, now()).unwrap();
            let Some(expected) = expected else {
                assert_eq!(step, written, "{case}");
                continue;
            };
            let HandoffStep::Blocked(blocker) = &step else {
                panic!("{case}: {step:?}");
            };
            assert_eq!(step.change(), None);
            assert!(blocker.text().contains(expected), "{case}: {blocker:?}");
            let reported = restricted(scaling, &observed, &step).waits_for().cloned();
            let waits = ScalingWait::Handoff(blocker.text().to_owned());
            assert_eq!(reported, (!is_set).then_some(waits), "{case}");

            let scaling = if is_set { unscaled(true) } else { scaled(None) };
            // A rollout has considered all of that.
            let with_rollout_step = plan(&observed, Some(&scaling), Some(&annotate), now());
            assert_eq!(with_rollout_step, Some(written.clone()), "{case}");

            rollout.availability.active = 0;
            let without_pods = with_rollout(is_set, rollout);
            let step = plan(&without_pods, Some(&scaling), no_rollout, now());
            assert_eq!(step, Some(written), "{case}");
        }
    }
}

/// SAFE-15: from the write until the owner has replaced the pods.
#[test]
fn handoff_by_itself_holds_a_slot_while_pods_are_replaced() {
    let until = "2026-01-01T00:20:00Z".parse().unwrap();
    let acquired = Some(SlotChange::Acquire(until));
    let released = Some(SlotChange::ReleaseAndReset);
    let keep = HandoffStep::Set(FieldDecision::Keep);
    let write = HandoffStep::Set(FieldDecision::Write);
    let no_slot = HandoffStep::Blocked(HandoffBlocker::NoSlot);
    let blocked = HandoffStep::Blocked(HandoffBlocker::Rollout("text".to_owned()));
    let rolling = |mut rollout: ObservedRollout| {
        rollout.objects[0].rolling = true;
        rollout
    };
    for (step, rollout, is_propagated, expected) in [
        (Some(&write), rollable(2), true, acquired),
        (Some(&HandoffStep::Remove), rollable(2), true, acquired),
        (Some(&write), rollable(0), true, None),
        (Some(&no_slot), rollable(2), true, Some(SlotChange::Wait)),
        (Some(&blocked), rollable(2), true, released),
        (Some(&keep), rollable(2), true, released),
        (Some(&keep), rollable(2), false, None),
        (Some(&keep), rolling(rollable(2)), true, None),
        (None, rolling(rollable(2)), false, released),
    ] {
        let mut observed = with_rollout(true, rollout);
        let target = &mut observed.resolved_mut().target.target;
        let handoff = AutoscalerHandoff {
            is_propagated,
            ..handoff(true)
        };
        target.scale = Scale::HandedOff(target.workload.clone(), handoff);
        assert_eq!(
            slot_change(&observed, step, now()),
            expected,
            "{step:?} {is_propagated}"
        );
    }
}

/// SO-5: no watch reports that a budget or a slot has become free.
#[test]
fn handoff_that_waits_is_checked_again() {
    let slot = HandoffBlocker::NoSlot.recheck_after();
    let budget = HandoffBlocker::Rollout("text".to_owned()).recheck_after();
    assert_eq!((slot.as_secs(), budget.as_secs()), (300, 10));
}
