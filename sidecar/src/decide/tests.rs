//! One row per rule of docs/spec/sidecar.md, sections 9 and 10.

mod bodies;
mod conformance;
mod crashes;
mod given_back;
mod sizes;

pub(super) use super::testing::{decide, rules};
use super::{
    Action, Decision, Deliveries, DeliveryState, EndActor, Kind, OtherCalls, Outcome, Rules,
    Verdict,
};

pub(super) const FOO: &str =
    r#"{"id":"1","route":{"actors":["foo","bar"],"current":0},"payload":{"a":1}}"#;
const TO_BAR: &str = r#"[{"route":{"actors":["foo","bar"],"current":1},"payload":2}]"#;
const ERROR: &str =
    r#"[{"error":"processing_error","details":{"message":"m","type":"T","traceback":"t"}}]"#;

pub(super) fn end_actor(end: EndActor) -> Rules {
    Rules {
        actor: "happy-end".to_owned(),
        end: Some(end),
        ..rules()
    }
}

/// The actions in short form, such as `send error_end error-end, acknowledge`.
pub(super) fn told(decision: &Decision) -> String {
    let action = |action: &Action| match action {
        Action::Call => "call".to_owned(),
        Action::CallAlone => "call alone".to_owned(),
        Action::CallAgain(pause) => format!("call again after {} s", pause.as_secs()),
        Action::Send(message) => {
            let kind = match message.kind {
                Kind::Routing => "route",
                Kind::HappyEnd => "happy",
                Kind::ErrorEnd => "error",
            };
            format!("{kind} {}", message.actor)
        }
        Action::ReportFinal => "report".to_owned(),
        Action::Acknowledge => "acknowledge".to_owned(),
        Action::Requeue(reason) => format!("requeue {reason:?}"),
        Action::Reject => "reject".to_owned(),
    };
    let actions: Vec<String> = decision.actions.iter().map(action).collect();
    let verdict = match &decision.verdict {
        Verdict::Failed(fault) => match fault.runtime {
            Some(runtime) => format!("failed {} {runtime}", fault.reason),
            None => format!("failed {}", fault.reason),
        },
        verdict => format!("{verdict:?}"),
    };
    format!("{}: {verdict}", actions.join(", "))
}

struct Row<'a> {
    ids: &'a str,
    body: &'a str,
    outcome: Outcome<'a>,
    state: DeliveryState,
    expected: &'a str,
}

fn row<'a>(ids: &'a str, body: &'a str, outcome: Outcome<'a>, expected: &'a str) -> Row<'a> {
    Row {
        ids,
        body,
        outcome,
        state: DeliveryState::default(),
        expected,
    }
}

fn check(rules: &Rules, rows: &[Row<'_>]) {
    for row in rows {
        let decision = decide(rules, row.body.as_bytes(), row.outcome, &row.state);
        assert_eq!(
            told(&decision),
            row.expected,
            "{}: {} {:?}",
            row.ids,
            row.body,
            row.outcome
        );
    }
}

/// SC-2, SC-59, SC-61, SC-67, SC-71
#[test]
fn only_messages_of_this_actor_reach_the_runtime() {
    let mismatch = "error error-end, acknowledge: failed route_mismatch";
    let unreadable = "error error-end, acknowledge: failed parse_error";
    let no_id = "error error-end, acknowledge: failed validation_error";
    let received = |ids, body, expected| row(ids, body, Outcome::Received, expected);
    check(
        &rules(),
        &[
            received("SC-59", FOO, "call: Open"),
            received(
                "SC-59 current absent",
                r#"{"id":"1","route":{"actors":["foo"]}}"#,
                "call: Open",
            ),
            received(
                "SC-59 null",
                r#"{"id":"1","route":{"actors":["foo"],"current":null}}"#,
                "call: Open",
            ),
            received(
                "SC-59 unknown keys",
                r#"{"x":[[]],"id":"1","route":{"actors":["foo"],"y":1}}"#,
                "call: Open",
            ),
            received(
                "SC-59 last counts",
                r#"{"id":"","id":"1","route":{},"route":{"actors":["foo"]}}"#,
                "call: Open",
            ),
            received(
                "SC-59 exact keys",
                r#"{"ID":"1","route":{"actors":["foo"]}}"#,
                no_id,
            ),
            received(
                "SC-59 later turn",
                r#"{"id":"1","route":{"actors":["x","foo"],"current":1}}"#,
                "call: Open",
            ),
            received(
                "SC-61 other's",
                r#"{"id":"1","route":{"actors":["bar"],"current":0}}"#,
                mismatch,
            ),
            received(
                "SC-61 beyond",
                r#"{"id":"1","route":{"actors":["foo"],"current":1}}"#,
                mismatch,
            ),
            received(
                "SC-61 negative",
                r#"{"id":"1","route":{"actors":["foo"],"current":-1}}"#,
                mismatch,
            ),
            received("SC-61 no route", r#"{"id":"1"}"#, mismatch),
            received("SC-61 null route", r#"{"id":"1","route":null}"#, mismatch),
            received(
                "SC-61 no actors",
                r#"{"id":"1","route":{"current":0}}"#,
                mismatch,
            ),
            received("SC-67 not JSON", "{", unreadable),
            received("SC-67 empty", "", unreadable),
            received("SC-67 more than one", "{} {}", unreadable),
            received("SC-67 no object", "[]", unreadable),
            received("SC-67 NaN", r#"{"id":"1","payload":NaN}"#, unreadable),
            received(
                "SC-67 route",
                r#"{"id":"1","route":{"actors":[1]}}"#,
                unreadable,
            ),
            received(
                "SC-67 current",
                r#"{"id":"1","route":{"actors":["foo"],"current":"0"}}"#,
                unreadable,
            ),
            received("SC-67 no id", r#"{"route":{"actors":["foo"]}}"#, no_id),
            received(
                "SC-67 empty id",
                r#"{"id":"","route":{"actors":["foo"]}}"#,
                no_id,
            ),
            received(
                "SC-67 number",
                r#"{"id":7,"route":{"actors":["foo"]}}"#,
                no_id,
            ),
            received(
                "SC-2",
                r#"{"id":"1","route":{"prev":[],"curr":"foo","next":[]},"payload":1}"#,
                "error error-end, acknowledge: failed unsupported_generation",
            ),
        ],
    );
    let not_text = decide(
        &rules(),
        &[b'"', 0xff, b'"'],
        Outcome::Received,
        &DeliveryState::default(),
    );
    assert_eq!(told(&not_text), unreadable);
}

/// SC-50, SC-62, SC-65, SC-69, SC-71, SC-100
#[test]
fn reply_follows_its_routes_or_goes_to_error_end_as_a_whole() {
    let long = format!(
        r#"[{{"route":{{"actors":["{}"],"current":0}}}}]"#,
        "a".repeat(255)
    );
    let invalid = "error error-end, acknowledge: failed invalid_reply invalid_reply";
    let failed = "error error-end, acknowledge: failed runtime_error execution_error";
    let replied = |ids, reply: &'static str, expected| {
        row(ids, FOO, Outcome::Replied(reply.as_bytes()), expected)
    };
    check(
        &rules(),
        &[
            replied("SC-62", TO_BAR, "route bar, acknowledge: Success"),
            replied(
                "SC-62 end",
                r#"[{"route":{"actors":["foo"],"current":1},"payload":2}]"#,
                "happy happy-end, acknowledge: Success",
            ),
            replied(
                "SC-62 negative",
                r#"[{"route":{"actors":["foo"],"current":-1}}]"#,
                "happy happy-end, acknowledge: Success",
            ),
            replied(
                "SC-62 nobody",
                r#"[{"route":{"actors":[""],"current":0}}]"#,
                "happy happy-end, acknowledge: Success",
            ),
            replied(
                "SC-62 own queue",
                r#"[{"route":{"actors":["foo"],"current":0}}]"#,
                "route foo, acknowledge: Success",
            ),
            replied(
                "SC-62 none",
                "[]",
                "happy happy-end, acknowledge: EmptyResponse",
            ),
            replied(
                "SC-75 fan-out",
                r#"[{"route":{"actors":["a"],"current":0}},{"route":{"actors":["b"],"current":0}},{"route":{"actors":[],"current":0}}]"#,
                "route a, route b, happy happy-end, acknowledge: Success",
            ),
            replied("SC-65", ERROR, failed),
            replied(
                "SC-65 behind a result",
                r#"[{"route":{"actors":["a"],"current":0}},{"error":"processing_error"}]"#,
                failed,
            ),
            replied(
                "SC-65 empty",
                r#"[{"error":"","route":{"actors":["a"],"current":0}}]"#,
                "route a, acknowledge: Success",
            ),
            replied(
                "SC-65 null",
                r#"[{"error":null,"route":{"actors":["a"],"current":0}}]"#,
                "route a, acknowledge: Success",
            ),
            replied("SC-50 no array", "{}", invalid),
            replied("SC-50 not JSON", "[", invalid),
            replied("SC-50 element", "[1]", invalid),
            replied("SC-50 no route", r#"[{"payload":1}]"#, invalid),
            replied("SC-50 no actors", r#"[{"route":{"current":0}}]"#, invalid),
            replied(
                "SC-50 no current",
                r#"[{"route":{"actors":["a"]}}]"#,
                invalid,
            ),
            replied(
                "SC-50 actors",
                r#"[{"route":{"actors":["a",1],"current":0}}]"#,
                invalid,
            ),
            replied(
                "SC-50 current",
                r#"[{"route":{"actors":["a"],"current":0.5}}]"#,
                invalid,
            ),
            replied("SC-50 error", r#"[{"error":1}]"#, invalid),
            row(
                "SC-100",
                FOO,
                Outcome::Replied(long.as_bytes()),
                "error error-end, acknowledge: failed invalid_destination",
            ),
        ],
    );
}

/// SC-48, SC-49, SC-51, SC-52, SC-71, SC-82
#[test]
fn message_without_a_reply_is_requeued_only_if_retryable() {
    let crashed = "error error-end, acknowledge: failed runtime_crashed crashed";
    let back = "requeue RuntimeCrashed: Open";
    let ended = |ids, deliveries, others, expected| Row {
        state: DeliveryState {
            deliveries,
            others,
            ..DeliveryState::default()
        },
        ..row(ids, FOO, Outcome::Ended, expected)
    };
    check(
        &rules(),
        &[
            row("SC-48", FOO, Outcome::NotRead, "requeue NotRead: Open"),
            row(
                "SC-51",
                FOO,
                Outcome::TimedOut,
                "error error-end, acknowledge: failed runtime_error timeout",
            ),
            ended("SC-49", Deliveries::First, OtherCalls::None, back),
            ended(
                "SC-49 counted",
                Deliveries::Before(0),
                OtherCalls::None,
                back,
            ),
            ended(
                "SC-49 used up",
                Deliveries::Before(1),
                OtherCalls::None,
                crashed,
            ),
            ended(
                "SC-49 classic",
                Deliveries::Redelivered,
                OtherCalls::None,
                crashed,
            ),
            Row {
                state: DeliveryState {
                    deliveries: Deliveries::Redelivered,
                    stopping: true,
                    ..DeliveryState::default()
                },
                ..row("SC-82", FOO, Outcome::Ended, "requeue Shutdown: Open")
            },
        ],
    );
    let none = Rules {
        crash_retries: 0,
        ..rules()
    };
    check(
        &none,
        &[ended(
            "SC-49 no retries",
            Deliveries::First,
            OtherCalls::None,
            crashed,
        )],
    );
    let more = Rules {
        crash_retries: 3,
        ..rules()
    };
    check(
        &more,
        &[ended(
            "SC-49 more",
            Deliveries::Before(2),
            OtherCalls::None,
            back,
        )],
    );
}

/// SC-68, SC-69, SC-70, SC-71, SC-90
#[test]
fn end_actor_routes_nothing_and_makes_three_attempts() {
    let consumed = "report, acknowledge: EndConsumed";
    let replied = |ids, body, reply: &'static str, expected| {
        row(ids, body, Outcome::Replied(reply.as_bytes()), expected)
    };
    let tried = |ids, outcome, attempt, stopping, expected| Row {
        state: DeliveryState {
            attempt,
            stopping,
            ..DeliveryState::default()
        },
        ..row(ids, FOO, outcome, expected)
    };
    let error = Outcome::Replied(ERROR.as_bytes());
    check(
        &end_actor(EndActor::Happy),
        &[
            row("SC-69 any route", FOO, Outcome::Received, "call: Open"),
            row("SC-68", "{", Outcome::Received, "call: Open"),
            row("SC-68 empty", "", Outcome::Received, "call: Open"),
            replied("SC-69", FOO, "[]", consumed),
            replied("SC-69", FOO, "[{}]", consumed),
            replied("SC-69", FOO, TO_BAR, consumed),
            replied("SC-68 no id", "{}", "[{}]", "acknowledge: EndConsumed"),
            row("SC-48", FOO, Outcome::NotRead, "requeue NotRead: Open"),
            tried("SC-70", error, 0, false, "call again after 1 s: Open"),
            tried("SC-70", error, 1, false, "call again after 4 s: Open"),
            tried(
                "SC-70",
                error,
                2,
                false,
                "reject: failed runtime_error execution_error",
            ),
            tried(
                "SC-70",
                Outcome::TimedOut,
                2,
                false,
                "reject: failed runtime_error timeout",
            ),
            tried(
                "SC-70",
                Outcome::Ended,
                0,
                false,
                "call again after 1 s: Open",
            ),
            tried(
                "SC-70",
                Outcome::Ended,
                2,
                false,
                "reject: failed runtime_error crashed",
            ),
            tried(
                "SC-70",
                Outcome::Replied(b"x"),
                2,
                false,
                "reject: failed runtime_error invalid_reply",
            ),
            tried("SC-70 shutdown", error, 0, true, "requeue Shutdown: Open"),
            tried(
                "SC-70 shutdown",
                Outcome::Ended,
                2,
                true,
                "requeue Shutdown: Open",
            ),
            tried(
                "SC-70 shutdown",
                Outcome::TimedOut,
                2,
                true,
                "requeue TimedOut: Open",
            ),
            tried(
                "SC-90",
                Outcome::NotReported,
                0,
                false,
                "requeue NotReported: Open",
            ),
            tried(
                "SC-90",
                Outcome::NotReported,
                2,
                false,
                "requeue NotReported: Open",
            ),
            tried(
                "SC-90",
                Outcome::NotReported,
                0,
                true,
                "requeue Shutdown: Open",
            ),
        ],
    );
}

/// SC-52, SC-70, SC-71: the process may exit after each timeout, and then loses its count.
#[test]
fn timeouts_of_earlier_processes_are_attempts_of_an_end_actor() {
    let rejected = "reject: failed runtime_error timeout";
    for (deliveries, attempt, expected) in [
        (Deliveries::First, 0, "call again after 1 s: Open"),
        (Deliveries::First, 1, "call again after 4 s: Open"),
        (Deliveries::First, 2, rejected),
        (Deliveries::Before(0), 0, "call again after 1 s: Open"),
        (Deliveries::Before(1), 0, "call again after 4 s: Open"),
        (Deliveries::Before(1), 1, rejected),
        (Deliveries::Before(2), 0, rejected),
        (Deliveries::Before(u32::MAX), 1, rejected),
        (Deliveries::Redelivered, 0, rejected),
    ] {
        let state = DeliveryState {
            deliveries,
            attempt,
            ..DeliveryState::default()
        };
        let row = Row {
            state,
            ..row("SC-70", FOO, Outcome::TimedOut, expected)
        };
        check(&end_actor(EndActor::Error), &[row]);
    }
}
