use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{ConflictCount, ContentionState, FieldDecision, FieldView, MAX_BACKOFF, SpecRevision};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn count(number: i32) -> ConflictCount {
    ConflictCount::new(number).unwrap()
}

fn revision(generation: i64, target: &str) -> SpecRevision {
    SpecRevision {
        generation,
        spec_hash: target.to_owned(),
    }
}

fn needed_field(was_set: bool, has_desired_value: bool) -> FieldView {
    FieldView {
        needed: true,
        was_set,
        has_desired_value,
    }
}

/// CONF-2, CONF-5, CONF-6
#[test]
fn decision_depends_on_the_contention_state() {
    let uncontested = ContentionState::Uncontested;
    let rewritten = ContentionState::Rewritten(count(2));
    let waiting = ContentionState::Waiting(count(2), at(100));
    let yielded = ContentionState::Yielded(revision(1, "spec"));
    let wait = |seconds| FieldDecision::Wait(Duration::from_secs(seconds));
    for (state, was_set, now, expected) in [
        (&uncontested, false, 50, FieldDecision::Write),
        (&uncontested, true, 50, FieldDecision::RecordConflict),
        (&rewritten, false, 50, FieldDecision::Write),
        (&rewritten, true, 50, FieldDecision::RecordConflict),
        (&waiting, true, 50, wait(50)),
        (&waiting, false, 99, wait(1)),
        (&waiting, false, 100, FieldDecision::Write),
        (&waiting, true, 101, FieldDecision::Write),
        (&yielded, true, 50, FieldDecision::Yield),
        (&yielded, false, 5000, FieldDecision::Yield),
    ] {
        let decide = |view| state.decide(view, &revision(1, "spec"), at(now));
        let case = format!("{state:?}, set before: {was_set}, at {now}");
        assert_eq!(decide(needed_field(was_set, false)), expected, "{case}");
        assert_eq!(
            decide(needed_field(was_set, true)),
            FieldDecision::Keep,
            "{case}: has the desired value"
        );
        let unneeded = FieldView {
            needed: false,
            ..needed_field(was_set, false)
        };
        assert_eq!(decide(unneeded), FieldDecision::Keep, "{case}: not needed");
    }
    for other in [revision(2, "spec"), revision(1, "other")] {
        let step = yielded.decide(needed_field(false, false), &other, at(50));
        assert_eq!(step, FieldDecision::Write, "{other:?}");
    }
}

/// SAFE-43
#[test]
fn wait_set_by_a_clock_that_was_ahead_is_over() {
    let decide = |until| {
        let state = ContentionState::Waiting(count(2), at(until));
        state.decide(needed_field(true, false), &revision(1, "spec"), at(0))
    };
    assert_eq!(decide(300), FieldDecision::Wait(MAX_BACKOFF));
    assert_eq!(decide(500), FieldDecision::Wait(MAX_BACKOFF));
    assert_eq!(decide(86_400), FieldDecision::Write);
}

/// CONF-6
#[test]
fn backoff_doubles_with_each_conflict_and_the_fifth_stops() {
    let base = Duration::from_secs(5);
    let mut state = ContentionState::Uncontested;
    for (number, seconds) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
        state = state.after_conflict(revision(1, "spec"), base, at(1000));
        let expected = ContentionState::Waiting(count(number), at(1000 + seconds));
        assert_eq!((state.conflicts(), &state), (number, &expected));
        state = state.after_write();
        assert_eq!(state, ContentionState::Rewritten(count(number)));
    }
    state = state.after_conflict(revision(7, "spec"), base, at(1000));
    assert_eq!(state, ContentionState::Yielded(revision(7, "spec")));
    assert_eq!(state.conflicts(), 5);
    assert_eq!(
        state.after_write(),
        ContentionState::Uncontested,
        "other specs"
    );
    let again = state.after_conflict(revision(8, "spec"), base, at(0));
    assert_eq!(again.conflicts(), 1, "other specs");

    let slow = ContentionState::Rewritten(count(3)).after_conflict(
        revision(1, "spec"),
        MAX_BACKOFF,
        at(0),
    );
    assert_eq!(
        slow,
        ContentionState::Waiting(count(4), at(300)),
        "capped at the maximum"
    );
    for count in [-1, 0, 5, 1000] {
        assert_eq!(ConflictCount::new(count), None, "{count}");
    }
}
