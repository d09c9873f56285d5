//! The parser against arbitrary input (SC-59, SC-100).

mod fuzz;

use super::{Message, Reply, Routes, Routing};
use crate::decide::testing::{self, decide};
use crate::decide::{DeliveryState, Outcome};

/// Fragments of random messages: valid, almost valid and invalid JSON.
const PIECES: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"id\"",
    "\"parent_id\"",
    "\"route\"",
    "\"actors\"",
    "\"current\"",
    "\"headers\"",
    "\"payload\"",
    "\"error\"",
    "\"details\"",
    "\"foo\"",
    "\"1\"",
    "0",
    "-1",
    "1e999",
    "0.5",
    "null",
    "true",
    "\\u0000",
    "\\ud800",
    "\\",
    "\u{0}",
    "ü",
    " ",
    "\n",
    "\"curr\"",
    "\"traceback\"",
    "99999999999999999999",
];

/// SC-59
#[test]
fn other_values_may_be_nested_arbitrarily_deep() {
    let depth = 100_000;
    let body = format!(
        r#"{{"x":{}{},"id":"1","payload":{}{}}}"#,
        "[".repeat(depth),
        "]".repeat(depth),
        "{\"a\":".repeat(depth),
        "1".to_owned() + &"}".repeat(depth),
    );
    let message = Message::read(body.as_bytes()).expect("a message");
    assert_eq!(message.id, Some("\"1\""));
    assert!(
        message
            .payload
            .is_some_and(|payload| payload.len() == 6 * depth + 1)
    );
}

/// SC-59
#[test]
fn escaped_keys_match() {
    let message = Message::read(br#"{"\u0069d":"1","rout\u0065":{"\u0061ctors":["\u0066oo"]}}"#)
        .expect("a message");
    assert_eq!(message.id_text().as_deref(), Some("1"));
    assert_eq!(message.routing.current_actor(), "foo");
}

/// SC-59, SC-67
#[test]
fn members_of_the_wrong_type_are_ignored() {
    let body = br#"{"id":"1","parent_id":7,"headers":"h","route":[],"payload":null}"#;
    let message = Message::read(body).expect("a message");
    assert_eq!(
        (message.parent_id, message.headers, message.route),
        (None, None, None)
    );
    assert!(
        matches!(message.routing, Routing::Invalid(_)),
        "{:?}",
        message.routing
    );
    assert_eq!(message.payload, Some("null"));
    assert_eq!(
        Message::read(br#"{"id":"\ud800"}"#)
            .expect("a message")
            .id_text(),
        None
    );
}

/// SC-100
#[test]
fn no_input_panics_and_all_output_is_json() {
    let mut random = fastrand::Rng::with_seed(100);
    let (rules, state) = (testing::rules(), DeliveryState::default());
    for _ in 0..30_000 {
        let body = noise(&mut random);
        let reply = noise(&mut random);
        for outcome in [
            Outcome::Received,
            Outcome::Replied(reply.as_bytes()),
            Outcome::TimedOut,
        ] {
            for action in decide(&rules, body.as_bytes(), outcome, &state).actions {
                if let crate::decide::Action::Send(message) = action {
                    let sent = Message::read(&message.body)
                        .unwrap_or_else(|wrong| panic!("{body} {reply}: {wrong}"));
                    assert!(
                        sent.payload.is_some() && sent.route.is_some(),
                        "{body} {reply}"
                    );
                }
            }
        }
        let _ = Reply::read(reply.as_bytes(), Routes::Ignored);
        let _ = Reply::first_payload(reply.as_bytes());
    }
}

/// SC-60, SC-100
#[test]
fn payloads_round_trip_byte_for_byte() {
    let mut random = fastrand::Rng::with_seed(60);
    for _ in 0..2_000 {
        let payload = value(&mut random, 0);
        let body = format!(r#"{{"id":"1","route":{{"actors":["foo"]}},"payload":{payload}}}"#);
        assert_eq!(
            Message::read(body.as_bytes()).expect(&body).payload,
            Some(payload.as_str())
        );
    }
}

/// Usually a message in which some fragments are replaced, otherwise only fragments.
fn noise(random: &mut fastrand::Rng) -> String {
    let mut text = if random.bool() {
        r#"{"id":"1","route":{"actors":["foo","bar"],"current":0},"headers":{},"payload":[1]}"#
            .to_owned()
    } else {
        r#"[{"route":{"actors":["foo","bar"],"current":1},"payload":{"a":1}},{"error":""}]"#
            .to_owned()
    };
    if random.u8(..) < 60 {
        text.clear();
    }
    for _ in 0..random.usize(0..6) {
        let at = text.floor_char_boundary(random.usize(0..=text.len()));
        let until = text.ceil_char_boundary((at + random.usize(0..4)).min(text.len()));
        let piece = PIECES[random.usize(0..PIECES.len())];
        text.replace_range(at..until, piece);
    }
    text
}

/// A random JSON value with whitespace.
fn value(random: &mut fastrand::Rng, depth: usize) -> String {
    let space = [" ", "", "\n", ""][random.usize(0..4)];
    let many = |random: &mut fastrand::Rng, wrap: &dyn Fn(&mut fastrand::Rng) -> String| {
        let parts: Vec<String> = (0..random.usize(0..4)).map(|_| wrap(random)).collect();
        parts.join(",")
    };
    match random.usize(0..if depth > 4 { 4 } else { 6 }) {
        0 => "null".to_owned(),
        1 => ["-0", "1.10", "12345678901234567890", "1E+400"][random.usize(0..4)].to_owned(),
        2 => [
            "\"\"",
            "\"<&>\\u003c\"",
            "\"\\ud800\"",
            "\"ü\u{fffe}\"",
            "\"\\\"}\"",
        ][random.usize(0..5)]
        .to_owned(),
        3 => "true".to_owned(),
        4 => format!(
            "[{space}{}]",
            many(random, &|random| value(random, depth + 1))
        ),
        _ => format!(
            "{{{space}{}{space}}}",
            many(random, &|random| format!(
                "\"k\"{space}:{}",
                value(random, depth + 1)
            ))
        ),
    }
}
