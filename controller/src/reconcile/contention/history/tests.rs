use std::time::Duration;

use asya_shared::api::ConflictStatus;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{
    ConflictReset, FieldConflict, FieldEvent, conflict_message, conflict_reset, entry_message,
    last_conflict_time, new_conflicts, state, total_conflicts, update,
};
use crate::reconcile::contention::{ConflictCount, ContentionState, ContestedPart, SpecRevision};

const BASE: Duration = Duration::from_secs(5);
const UID: &str = "target-uid";

fn at(millisecond: i64) -> Timestamp {
    Timestamp::from_millisecond(millisecond).unwrap()
}

fn revision() -> SpecRevision {
    SpecRevision {
        generation: 3,
        spec_hash: "spec".to_owned(),
    }
}

fn conflict(manager: Option<&str>) -> FieldEvent {
    FieldEvent::Conflict(FieldConflict {
        field: "spec.template.metadata.annotations[asya.sh/roll]".to_owned(),
        object: "Deployment/model".to_owned(),
        manager: manager.map(str::to_owned),
        revision: revision(),
        yields: false,
    })
}

fn then(
    previous: &[ConflictStatus],
    part: ContestedPart,
    event: FieldEvent,
) -> Vec<ConflictStatus> {
    let after = update(previous, Some(UID), &[(part, event)], BASE, at(1_500));
    // As the next process reads it.
    serde_json::from_value(json!(after)).unwrap()
}

/// CONF-6
#[test]
fn every_state_survives_a_restart() {
    let mut entries = Vec::new();
    for number in 1..5 {
        entries = then(&entries, ContestedPart::Roll, conflict(Some("argocd")));
        let count = ConflictCount::new(number).unwrap();
        let until = at(1_500 + 5_000 * (1 << number));
        let until = Timestamp::from_second(until.as_second() + 1).unwrap();
        let waiting = ContentionState::Waiting(count, until);
        assert_eq!(
            state(&entries, UID, ContestedPart::Roll),
            waiting,
            "rounded up to the next second"
        );
        entries = then(&entries, ContestedPart::Roll, FieldEvent::Written);
        assert_eq!(
            state(&entries, UID, ContestedPart::Roll),
            ContentionState::Rewritten(count)
        );
    }
    entries = then(&entries, ContestedPart::Roll, conflict(None));
    let stopped = ContentionState::Yielded(revision());
    assert_eq!(state(&entries, UID, ContestedPart::Roll), stopped);
    assert_eq!(
        state(&entries, UID, ContestedPart::ScaledObject),
        ContentionState::Uncontested
    );
    assert_eq!(
        state(&entries, "another", ContestedPart::Roll),
        ContentionState::Uncontested
    );
    assert_eq!(total_conflicts(&entries), 5);
    assert_eq!(last_conflict_time(&entries).unwrap().0, at(1_000));
    entries = then(&entries, ContestedPart::Roll, FieldEvent::Reset);
    assert_eq!(
        state(&entries, UID, ContestedPart::Roll),
        ContentionState::Uncontested
    );
    assert_eq!(total_conflicts(&entries), 5, "the total is kept");
}

/// BIND-41, CONF-6
#[test]
fn conflicts_over_all_fields_are_counted_per_target() {
    let mut entries = then(&[], ContestedPart::Roll, conflict(Some("argocd")));
    entries = then(&entries, ContestedPart::ScaledObject, conflict(None));
    entries = then(&entries, ContestedPart::Roll, conflict(None));
    assert_eq!((entries.len(), total_conflicts(&entries)), (2, 3));
    let unknown = update(&entries, None, &[], BASE, at(0));
    assert_eq!(unknown, entries, "the target is unknown for now");
    let other = update(&entries, Some("another"), &[], BASE, at(0));
    assert_eq!(
        (
            other.len(),
            total_conflicts(&other),
            last_conflict_time(&other)
        ),
        (0, 0, None)
    );
    for event in [FieldEvent::Written, FieldEvent::Reset] {
        assert_eq!(then(&[], ContestedPart::Roll, event), []);
    }
}

/// CONF-6
#[test]
fn conflict_is_reported_once() {
    let first = then(&[], ContestedPart::Roll, conflict(None));
    let second = then(&first, ContestedPart::Roll, conflict(None));
    let other = then(&second, ContestedPart::ScaledObject, conflict(None));
    let new_parts = |previous: &[_], after: &[ConflictStatus]| {
        let all = new_conflicts(previous, after).map(|it| it.part.clone());
        all.collect::<Vec<_>>()
    };
    assert_eq!(new_parts(&[], &first), ["Roll"]);
    assert_eq!(new_parts(&first, &second), ["Roll"]);
    assert_eq!(new_parts(&second, &other), ["ScaledObject"]);
    assert_eq!(new_parts(&other, &other), [""; 0]);
    let written = then(&other, ContestedPart::Roll, FieldEvent::Written);
    assert_eq!(new_parts(&other, &written), [""; 0]);
}

/// CONF-5
#[test]
fn conflicts_are_reset_after_a_quiet_period() {
    let part = ContestedPart::ScaledObject;
    let entries = then(&[], part, conflict(None));
    let at_minute = |minute: i64| conflict_reset(&entries, UID, part, at(1_000 + minute * 60_000));
    let last_minute = ConflictReset::In(Duration::from_mins(1));
    assert_eq!(at_minute(14), last_minute);
    assert_eq!(at_minute(15), ConflictReset::Now);
    assert_eq!(at_minute(-24 * 60), ConflictReset::Now, "SAFE-43");
    assert_eq!(
        conflict_reset(&entries, UID, ContestedPart::Roll, at(0)),
        ConflictReset::Now
    );
    let over = then(&entries, part, FieldEvent::Reset);
    assert_eq!(
        conflict_reset(&over, UID, part, at(1_000)),
        ConflictReset::Now
    );
}

/// CONF-9
#[test]
fn message_names_the_field_the_manager_the_consequence_and_the_remedy() {
    let mut entries = then(
        &[],
        ContestedPart::Roll,
        conflict(Some("argocd-controller (Update)")),
    );
    let first = conflict_message(&entries, false).unwrap();
    assert_eq!(
        first,
        "Deployment/model: argocd-controller (Update) took over spec.template.metadata.annotations[asya.sh/roll]; the operator writes it again after a delay, at most four times; make that manager ignore this annotation, or set spec.binding.rollout to OnRestart and restart the pods yourself"
    );
    for _ in 0..4 {
        entries = then(&entries, ContestedPart::Roll, conflict(None));
    }
    let stopped = conflict_message(&entries, false).unwrap();
    assert!(
        stopped.contains(" 5 times; the operator no longer writes it"),
        "{stopped}"
    );
    let evicts = conflict_message(&entries, true).unwrap();
    assert!(evicts.contains("evicted one by one"), "{evicts}");
    let two = then(&entries, ContestedPart::ScaledObject, conflict(None));
    assert_eq!(conflict_message(&two, false).unwrap().lines().count(), 2);
    let over = then(&entries, ContestedPart::Roll, FieldEvent::Reset);
    assert_eq!(conflict_message(&over, false), None);
    let mut texts: Vec<_> = ContestedPart::ALL
        .into_iter()
        .flat_map(|part| {
            [
                entry_message(&entries[0], part, false),
                entry_message(&two[1], part, false),
            ]
        })
        .collect();
    texts.sort();
    texts.dedup();
    assert_eq!(
        texts.len(),
        2 * ContestedPart::ALL.len(),
        "every message is unique"
    );
}

/// CONF-2, CONF-9
#[test]
fn first_conflict_is_final_if_it_leads_to_eviction() {
    let FieldEvent::Conflict(first) = conflict(None) else {
        panic!()
    };
    let last = FieldEvent::Conflict(FieldConflict {
        yields: true,
        ..first
    });
    let entries = then(&[], ContestedPart::Roll, last);
    assert_eq!(
        state(&entries, UID, ContestedPart::Roll),
        ContentionState::Yielded(revision())
    );
    let message = |evicts| entry_message(&entries[0], ContestedPart::Roll, evicts);
    assert!(!message(true).contains(" times"), "{}", message(true));
    assert!(message(false).contains(" 5 times"), "{}", message(false));
}

#[test]
fn last_conflict_is_the_newest_of_all_fields() {
    let first = then(&[], ContestedPart::Roll, conflict(None));
    let events = [(ContestedPart::ScaledObject, conflict(None))];
    let both = update(&first, Some(UID), &events, BASE, at(9_000));
    assert_eq!(last_conflict_time(&both).unwrap().0, at(9_000));
}
