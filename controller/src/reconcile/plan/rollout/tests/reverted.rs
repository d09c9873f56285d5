//! The annotation that triggers a rollout is reverted.

use super::*;

/// Row "unknown" of the table in docs/spec/binding.md.
#[test]
fn unknown_owner_that_reverts_the_annotation_leads_to_eviction() {
    let reverted = |contention| Row {
        unknown_owner: true,
        previous: requested(1, -20),
        contention,
        ..Row::default()
    };
    assert_eq!(
        reverted(ContentionState::Uncontested).conflicts(),
        Some(true),
        "yields at once"
    );
    let yielded = |spec_hash: &str| {
        ContentionState::Yielded(SpecRevision {
            generation: 1,
            spec_hash: spec_hash.to_owned(),
        })
    };
    let evicts = Row {
        previous: None,
        ..reverted(yielded("spec"))
    };
    assert_eq!(evicts.evicts().as_deref(), Some("b"));
    let other = Row {
        previous: None,
        ..reverted(yielded("other"))
    };
    assert_eq!(
        other.annotates().as_deref(),
        Some(DESIRED_HASH),
        "target changed"
    );
}

/// CONF-2, CONF-6
#[test]
fn annotation_removed_while_pods_lack_the_sidecar_is_a_loss_and_rewritten_with_backoff() {
    let removed = |contention| Row {
        previous: requested(1, -1),
        contention,
        ..Row::default()
    };
    assert_eq!(
        removed(ContentionState::Uncontested).conflicts(),
        Some(false),
        "no delay"
    );
    let one = ConflictCount::new(1).unwrap();
    assert_eq!(
        removed(ContentionState::Rewritten(one)).conflicts(),
        Some(false)
    );
    let other = removed(ContentionState::Uncontested)
        .each_object(|object| object.roll_value = Some("somebody's".to_owned()));
    assert_eq!(other.conflicts(), Some(false), "another value");

    let in_place = removed(ContentionState::Uncontested)
        .each_object(|object| object.roll_value = Some(format!("{DESIRED_HASH}-1")));
    assert_eq!(in_place.waits(), Some(Reason::RolloutInProgress));
    let not_needed = Row {
        outdated: Vec::new(),
        ..removed(ContentionState::Uncontested)
    };
    assert_eq!(not_needed.decide(), RolloutDecision::NotNeeded);
    let earlier_spec = Row {
        previous: requested(1, -100).map(|previous| RolloutStatus {
            value: "another".to_owned(),
            ..previous
        }),
        ..Row::default()
    }
    .each_object(|object| object.roll_value = Some("another".to_owned()));
    assert_eq!(earlier_spec.annotates().as_deref(), Some(DESIRED_HASH));

    let waiting = |until, now| Row {
        previous: None,
        contention: ContentionState::Waiting(one, at(until)),
        now,
        ..Row::default()
    };
    assert_eq!(waiting(10, 9).waits(), Some(Reason::RolloutWaiting));
    assert_eq!(waiting(10, 10).annotates().as_deref(), Some(DESIRED_HASH));
    let rolling = waiting(10, 11).each_object(|object| object.rolling = true);
    assert_eq!(
        rolling.waits(),
        Some(Reason::RolloutInProgress),
        "not before the last rollout has ended"
    );
}

/// CONF-2, CONF-6
#[test]
fn annotation_with_too_many_conflicts_is_not_written_until_a_spec_changes() {
    let yielded = |generation, workload_specs_hash| Row {
        contention: ContentionState::Yielded(SpecRevision {
            generation: 1,
            spec_hash: "spec".to_owned(),
        }),
        generation,
        workload_specs_hash,
        ..Row::default()
    };
    assert_eq!(yielded(1, "spec").decide(), RolloutDecision::Yield);
    assert!(yielded(2, "spec").annotates().is_some(), "actor changed");
    assert!(yielded(1, "other").annotates().is_some(), "target changed");
    let on_restart = Row {
        rollout_policy: BindingRollout::OnRestart,
        ..yielded(1, "spec")
    };
    assert_eq!(
        on_restart.decide(),
        RolloutDecision::NotNeeded,
        "no longer needed"
    );
}
