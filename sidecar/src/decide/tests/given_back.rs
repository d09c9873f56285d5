//! Messages that the runtime of an end actor gives back.

use super::{DeliveryState, ERROR, EndActor, FOO, Outcome, Row, TO_BAR, check, end_actor, row};

/// SC-69, SC-72, RUN-20: the runtime replies with the message itself if its handler gives it back while the pod
/// terminates.
#[test]
fn message_that_the_runtime_of_an_end_actor_gives_back_is_requeued() {
    let back = "requeue NotRead: Open";
    let consumed = "report, acknowledge: EndConsumed";
    let no_route = r#"{"id":"1","payload":2}"#;
    for (runtime_ends, body, reply, expected) in [
        (
            true,
            FOO,
            r#"[{"route":{"current":0,"actors":["f\u006fo","bar"]},"payload":{"a":1}}]"#,
            back,
        ),
        (
            true,
            r#"{"id":"1","route":{"actors":["foo"]}}"#,
            r#"[{"route":{"actors":["foo"],"current":0}}]"#,
            back,
        ),
        (true, no_route, r#"[{"payload":2}]"#, back),
        // In payload mode, these are results.
        (true, FOO, TO_BAR, consumed),
        (true, FOO, "[]", consumed),
        (true, FOO, "[{}]", consumed),
        (true, FOO, r#"[{"payload":2}]"#, consumed),
        (
            true,
            FOO,
            r#"[{"route":{"actors":["foo"],"current":0}}]"#,
            consumed,
        ),
        (true, FOO, ERROR, "call again after 1 s: Open"),
        // The runtime gives messages back only while it exits; at other times, a handler may return whole envelopes.
        (
            false,
            FOO,
            r#"[{"route":{"actors":["foo","bar"],"current":0},"payload":{"a":1}}]"#,
            consumed,
        ),
    ] {
        let state = DeliveryState {
            runtime_ends,
            ..DeliveryState::default()
        };
        let row = Row {
            state,
            ..row("SC-69", body, Outcome::Replied(reply.as_bytes()), expected)
        };
        check(&end_actor(EndActor::Happy), &[row]);
    }
}

/// SC-68, SC-69, SC-72: a message has no limit at an end actor, but the reply that gives it back has.
#[test]
fn message_of_an_end_actor_that_may_have_been_given_back_as_too_large_is_requeued() {
    for (runtime_ends, expected) in [
        (true, "requeue NotRead: Open"),
        (false, "report, acknowledge: EndConsumed"),
    ] {
        let state = DeliveryState {
            runtime_ends,
            ..DeliveryState::default()
        };
        let row = Row {
            state,
            ..row("SC-69", FOO, Outcome::ReplyTooLarge(1), expected)
        };
        check(&end_actor(EndActor::Happy), &[row]);
    }
}
