//! Messages that are too large (SC-83).

use serde_json::json;

use super::bodies::{json_of, sent};
use super::{FOO, Row, TO_BAR, check, row, rules};
use crate::compose::Keep;
use crate::decide::{DeliveryState, Kind, Outcome, Refused, Rules};

/// SC-83
#[test]
fn error_that_is_too_large_loses_its_traceback_and_then_its_payload() {
    let traceback = format!("first{}last", "ü".repeat(50_000));
    let reply =
        json!([{"error": "processing_error", "details": {"message": "m", "traceback": traceback}}])
            .to_string();
    let kept = |keep| {
        let state = DeliveryState {
            refused: Refused { result: None, keep },
            ..DeliveryState::default()
        };
        json_of(
            &sent(
                &rules(),
                FOO.as_bytes(),
                Outcome::Replied(reply.as_bytes()),
                &state,
            )[0],
        )["payload"]
            .clone()
    };
    let all = kept(Keep::All);
    assert_eq!(all["details"]["traceback"], traceback);
    let cut = kept(Keep::LessText);
    let rest = cut["details"]["traceback"].as_str().expect("a traceback");
    assert!(
        rest.len() <= 64 << 10 && rest.ends_with("last") && !rest.starts_with("first"),
        "{}",
        rest.len()
    );
    assert_eq!(
        (&cut["details"]["message"], &cut["original_payload"]),
        (&json!("m"), &json!({"a": 1}))
    );
    assert_eq!(kept(Keep::NoPayload).get("original_payload"), None);
    let too_large = sent(
        &rules(),
        FOO.as_bytes(),
        Outcome::ReplyTooLarge(4096),
        &DeliveryState::default(),
    );
    assert_eq!(
        json_of(&too_large[0])["payload"],
        json!({"error": "message_too_large", "original_size": 4096, "original_payload": {"a": 1}})
    );
}

/// SC-83
#[test]
fn error_that_is_too_large_is_reduced_until_only_its_beginning_is_left() {
    let source = json!({
        "id": "1", "route": {"actors": ["foo", "bar"], "current": 0}, "headers": {"h": "x".repeat(100_000)},
        "payload": "x".repeat(100_000),
    })
    .to_string();
    let text = format!("first{}last", "ü".repeat(50_000));
    let reply = json!([{"error": text, "details": {"message": text, "type": "x".repeat(100_000)}}])
        .to_string();
    let mut refused = Refused::default();
    let mut sizes = Vec::new();
    let mut last = String::new();
    loop {
        let state = DeliveryState {
            refused,
            ..DeliveryState::default()
        };
        last.clone_from(
            &sent(
                &rules(),
                source.as_bytes(),
                Outcome::Replied(reply.as_bytes()),
                &state,
            )[0],
        );
        sizes.push(last.len() / 1000);
        match refused.and(Kind::ErrorEnd, last.len()) {
            Some(next) => refused = next,
            None => break,
        }
    }
    // Everything, shortened error and message, no payload, no details, no headers.
    assert_eq!(sizes, [500, 332, 232, 116, 16]);
    let error = json_of(&last)["payload"]["error"].clone();
    let error = error.as_str().expect("a text");
    assert!(
        error.starts_with("firstü") && error.len() <= 16 << 10,
        "{}",
        error.len()
    );
    assert_eq!(json_of(&last)["id"], "1");
}

/// SC-83
#[test]
fn sidecars_own_text_is_reduced_as_well() {
    let source =
        json!({"id": "1", "route": {"actors": ["x".repeat(100_000)], "current": 0}}).to_string();
    let state = DeliveryState {
        refused: Refused {
            result: None,
            keep: Keep::LessText,
        },
        ..DeliveryState::default()
    };
    let sent = &sent(&rules(), source.as_bytes(), Outcome::Received, &state)[0];
    let error = json_of(sent)["payload"]["error"].clone();
    let error = error.as_str().expect("a text");
    assert!(
        error.starts_with("Route mismatch") && error.len() <= 16 << 10,
        "{}",
        error.len()
    );
}

/// SC-83
#[test]
fn messages_that_are_too_large_go_to_error_end_in_reduced_form() {
    let small = Rules {
        max_message_size: 10,
        ..rules()
    };
    let too_large = "error error-end, acknowledge: failed message_too_large";
    check(
        &small,
        &[
            row("SC-83 incoming", FOO, Outcome::Received, too_large),
            row(
                "SC-83 not JSON either",
                "0123456789a",
                Outcome::Received,
                too_large,
            ),
        ],
    );
    let refused = DeliveryState {
        refused: Refused {
            result: Some(99),
            keep: Keep::All,
        },
        ..DeliveryState::default()
    };
    check(
        &rules(),
        &[
            row(
                "SC-83 reply",
                FOO,
                Outcome::ReplyTooLarge(1 << 30),
                too_large,
            ),
            Row {
                state: refused,
                ..row(
                    "SC-83 result",
                    FOO,
                    Outcome::Replied(TO_BAR.as_bytes()),
                    too_large,
                )
            },
        ],
    );
    let mut refused = Refused::default();
    for (kind, expected) in [
        (
            Kind::Routing,
            Refused {
                result: Some(7),
                keep: Keep::All,
            },
        ),
        (
            Kind::ErrorEnd,
            Refused {
                result: Some(7),
                keep: Keep::LessText,
            },
        ),
        (
            Kind::ErrorEnd,
            Refused {
                result: Some(7),
                keep: Keep::NoPayload,
            },
        ),
        (
            Kind::ErrorEnd,
            Refused {
                result: Some(7),
                keep: Keep::NoDetails,
            },
        ),
        (
            Kind::ErrorEnd,
            Refused {
                result: Some(7),
                keep: Keep::NoHeaders,
            },
        ),
    ] {
        refused = refused.and(kind, 7).expect("smaller");
        assert_eq!(refused, expected);
    }
    assert_eq!(refused.and(Kind::ErrorEnd, 7), None);
}

/// SC-83, SC-84: the rest was not received.
#[test]
fn beginning_of_a_message_that_is_too_large_has_all_but_its_payload() {
    let source = concat!(
        r#"{"id":"1","parent_id":"0","route":{"actors":["foo"],"current":0},"headers":{"h":1.50},"#,
        r#""payload":"ü"}"#
    );
    let payload = r#""payload":{"error":"message_too_large","original_size":70000}}"#;
    let beginning = |bytes: usize| {
        let state = DeliveryState {
            size: Some(70_000),
            ..DeliveryState::default()
        };
        let body = &source.as_bytes()[..bytes];
        let mut sent = sent(&rules(), body, Outcome::Received, &state);
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    };
    let head = &source[..source.find(r#""payload""#).expect("a payload")];
    for cut in [0, 5, 12, 13] {
        // Cut within the key of the payload or its value, also within a character.
        assert_eq!(beginning(head.len() + cut), format!("{head}{payload}"));
    }
    let no_headers = source.find(r#""headers""#).expect("headers");
    assert_eq!(
        beginning(no_headers + 14),
        format!("{}{payload}", &source[..no_headers])
    );
    assert!(beginning(8).starts_with(r#"{"id":"unparsable-"#), "SC-67");
}
