use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{FieldStep, FieldView, LONGEST, Losses, Specs, State};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn losses(number: i32) -> Losses {
    Losses::new(number).unwrap()
}

fn specs(generation: i64, target: &str) -> Specs {
    Specs {
        generation,
        target: target.to_owned(),
    }
}

/// A needed field: whether we wrote it, and whether it has the desired value.
fn seen(written: bool, stands: bool) -> FieldView {
    FieldView {
        needed: true,
        written,
        stands,
    }
}

/// CONF-2, CONF-5, CONF-6
#[test]
fn decision_depends_on_the_contention_state() {
    let (idle, held) = (State::Idle, State::Held(losses(2)));
    let waiting = State::Waiting(losses(2), at(100));
    let stopped = State::Stopped(specs(1, "spec"));
    let wait = |seconds| FieldStep::Wait(Duration::from_secs(seconds));
    for (state, written, now, wanted) in [
        (&idle, false, 50, FieldStep::Write),
        (&idle, true, 50, FieldStep::Lost),
        (&held, false, 50, FieldStep::Write),
        (&held, true, 50, FieldStep::Lost),
        (&waiting, true, 50, wait(50)),
        (&waiting, false, 99, wait(1)),
        (&waiting, false, 100, FieldStep::Write),
        (&waiting, true, 101, FieldStep::Write),
        (&stopped, true, 50, FieldStep::Stop),
        (&stopped, false, 5000, FieldStep::Stop),
    ] {
        let decide = |sight| state.decide(sight, &specs(1, "spec"), at(now));
        let row = format!("{state:?}, written {written}, at {now}");
        assert_eq!(decide(seen(written, false)), wanted, "{row}");
        assert_eq!(
            decide(seen(written, true)),
            FieldStep::Rest,
            "{row}: it stands"
        );
        let needless = FieldView {
            needed: false,
            ..seen(written, false)
        };
        assert_eq!(decide(needless), FieldStep::Rest, "{row}: nobody needs it");
    }
    for other in [specs(2, "spec"), specs(1, "other")] {
        let step = stopped.decide(seen(false, false), &other, at(50));
        assert_eq!(step, FieldStep::Write, "{other:?}");
    }
}

/// CONF-6
#[test]
fn backoff_doubles_with_each_loss_and_the_fifth_gives_up() {
    let base = Duration::from_secs(5);
    let mut state = State::Idle;
    for (number, seconds) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
        state = state.lost(specs(1, "spec"), base, at(1000));
        let wanted = State::Waiting(losses(number), at(1000 + seconds));
        assert_eq!((state.losses(), &state), (number, &wanted));
        state = state.written();
        assert_eq!(state, State::Held(losses(number)));
    }
    state = state.lost(specs(7, "spec"), base, at(1000));
    assert_eq!(state, State::Stopped(specs(7, "spec")));
    assert_eq!(state.losses(), 5);
    assert_eq!(state.written(), State::Idle, "with another spec");
    let again = state.lost(specs(8, "spec"), base, at(0));
    assert_eq!(again.losses(), 1, "with another spec");

    let slow = State::Held(losses(3)).lost(specs(1, "spec"), LONGEST, at(0));
    assert_eq!(slow, State::Waiting(losses(4), at(300)), "never longer");
    for none in [-1, 0, 5, 1000] {
        assert_eq!(Losses::new(none), None, "{none}");
    }
}
