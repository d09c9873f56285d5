//! Crashes of the runtime while several calls are open.

use super::{FOO, Row, check, end_actor, row, rules};
use crate::decide::{Deliveries, DeliveryState, EndActor, OtherCalls, Outcome, Reason};

/// SC-34, SC-52: the queue must not count failures that another message has caused.
#[test]
fn only_what_its_own_message_caused_is_a_failure() {
    assert!(Reason::RuntimeCrashed.is_failure());
    assert!(!Reason::OtherTimedOut.is_failure());
}

/// SC-49, SC-52, SC-70, SC-71, SC-82
#[test]
fn crash_of_several_calls_counts_for_none_of_them() {
    let alone = "call alone: Open";
    let shutdown = "requeue Shutdown: Open";
    let state = DeliveryState {
        deliveries: Deliveries::Redelivered,
        attempt: 2,
        ..DeliveryState::default()
    };
    let with_others = DeliveryState {
        others: OtherCalls::Open,
        ..state
    };
    let ended = |ids, state, expected| Row {
        state,
        ..row(ids, FOO, Outcome::Ended, expected)
    };
    let not_read = |ids, state, expected| Row {
        state,
        ..row(ids, FOO, Outcome::NotRead, expected)
    };
    let is_alone = DeliveryState {
        alone: true,
        ..state
    };
    let stopping = |state| DeliveryState {
        stopping: true,
        ..state
    };
    for rules in [rules(), end_actor(EndActor::Other)] {
        check(
            &rules,
            &[
                ended("SC-49", with_others, alone),
                not_read("SC-49 not read", is_alone, alone),
                ended("SC-82", stopping(with_others), shutdown),
                not_read("SC-82", stopping(is_alone), "requeue NotRead: Open"),
                Row {
                    state: DeliveryState {
                        others: OtherCalls::TimedOut,
                        ..with_others
                    },
                    ..row("SC-52", FOO, Outcome::Ended, "requeue OtherTimedOut: Open")
                },
            ],
        );
    }
    let crashed = "error error-end, acknowledge: failed runtime_crashed crashed";
    check(&rules(), &[ended("SC-49 alone", is_alone, crashed)]);
    let rejected = "reject: failed runtime_error crashed";
    check(
        &end_actor(EndActor::Other),
        &[ended("SC-70 alone", is_alone, rejected)],
    );
}
