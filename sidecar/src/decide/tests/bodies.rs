//! Bodies of outgoing messages.

use serde_json::{Value, json};

use super::{FOO, rules};
use crate::decide::{Action, Body, Decision, DeliveryState, Outcome, Rules, decide};

pub(super) fn sent(
    rules: &Rules,
    body: &[u8],
    outcome: Outcome<'_>,
    state: &DeliveryState,
) -> Vec<String> {
    let body = Body {
        received: body,
        request: body,
    };
    bodies(decide(rules, body, outcome, state))
}

fn bodies(decision: Decision) -> Vec<String> {
    let bodies = decision
        .actions
        .into_iter()
        .filter_map(|action| match action {
            Action::Send(message) => Some(String::from_utf8(message.body).expect("UTF-8")),
            _ => None,
        });
    bodies.collect()
}

fn replied(body: &str, reply: &str) -> Vec<String> {
    sent(
        &rules(),
        body.as_bytes(),
        Outcome::Replied(reply.as_bytes()),
        &DeliveryState::default(),
    )
}

pub(super) fn json_of(body: &str) -> Value {
    serde_json::from_str(body).expect(body)
}

/// SC-60, SC-62
#[test]
fn payloads_headers_and_routes_stay_byte_for_byte() {
    let payload =
        "{ \"b\" : 1.10, \"a\":[<&>, 12345678901234567890, \"\\u003c\\ud800\", 1e+3 ] ,\"\":null }"
            .replace("<&>", "\"<&>\"");
    let headers = "{ \"traceparent\" :\"00-ü-01\"}";
    let route = "{\"current\": 1 ,\"actors\":[\"foo\",\"b\\u0061r\"],\"metadata\":{\"x\" : 1}}";
    let reply = format!(
        "[ {{\"payload\": {payload} ,\"route\":{route}, \"headers\":{headers},\"id\":\"no\"}} ]"
    );
    let expected =
        format!("{{\"id\":\"1\",\"route\":{route},\"headers\":{headers},\"payload\":{payload}}}");
    assert_eq!(replied(FOO, &reply), [expected]);
}

/// SC-62
#[test]
fn empty_reply_forwards_the_source_unchanged() {
    let source = r#"{"payload": [1, 2],"x":1,"headers":{"h":1},"route":{"actors":["foo","bar"],"current":0},"id":"1","parent_id":"0"}"#;
    let expected = r#"{"id":"1","parent_id":"0","route":{"actors":["foo","bar"],"current":0},"headers":{"h":1},"payload":[1, 2]}"#;
    assert_eq!(replied(source, "[]"), [expected]);
}

/// SC-63
#[test]
fn children_have_their_own_ids_and_name_their_parent() {
    let source = r#"{"id":"a\"b","parent_id":"p","route":{"actors":["foo"]},"payload":0}"#;
    let element = r#"{"route":{"actors":["x"],"current":0},"payload":1}"#;
    let reply = format!("[{element},{element},{element}]");
    let all: Vec<Value> = replied(source, &reply)
        .iter()
        .map(|body| json_of(body))
        .collect();
    assert_eq!(
        (&all[0]["id"], &all[0]["parent_id"]),
        (&json!("a\"b"), &json!("p"))
    );
    assert_eq!(
        (&all[1]["id"], &all[1]["parent_id"]),
        (&json!("a\"b-1"), &json!("a\"b"))
    );
    assert_eq!(
        (&all[2]["id"], &all[2]["parent_id"]),
        (&json!("a\"b-2"), &json!("a\"b"))
    );
}

/// SC-64
#[test]
fn headers_come_from_the_element_or_the_source() {
    let source = r#"{"id":"1","route":{"actors":["foo"]},"headers":{"h":"source"},"payload":0}"#;
    for (headers, expected) in [
        (r#","headers":{"h":"own"}"#, json!({"h": "own"})),
        ("", json!({"h": "source"})),
        (r#","headers":null"#, json!({"h": "source"})),
        (r#","headers":[1]"#, json!({"h": "source"})),
        (r#","headers":{}"#, json!({})),
    ] {
        let reply = format!(r#"[{{"route":{{"actors":[],"current":0}}{headers}}}]"#);
        assert_eq!(
            json_of(&replied(source, &reply)[0])["headers"],
            expected,
            "{headers}"
        );
    }
    assert_eq!(
        json_of(&replied(source, "[]")[0])["headers"],
        json!({"h": "source"})
    );
    assert_eq!(
        json_of(&replied(source, r#"[{"error":"e"}]"#)[0])["headers"],
        json!({"h": "source"})
    );
}

/// SC-66
#[test]
fn error_end_receives_the_handlers_error_and_the_original_payload() {
    let source = r#"{"id":"1","parent_id":"0","route":{"actors":["foo","bar"],"current":0},"payload":12345678901234567890}"#;
    let reply = r#"[{"error":"processing_error","details":{"message":"<m>","type":"ValueError","traceback":"t"}}]"#;
    let expected = concat!(
        r#"{"id":"1","parent_id":"0","route":{"actors":["foo","bar"],"current":0},"payload":{"error":"processing_error","#,
        r#""details":{"message":"<m>","type":"ValueError","traceback":"t"},"original_payload":12345678901234567890}}"#
    );
    assert_eq!(replied(source, reply), [expected]);
    let timed_out = sent(
        &rules(),
        FOO.as_bytes(),
        Outcome::TimedOut,
        &DeliveryState::default(),
    );
    assert_eq!(
        json_of(&timed_out[0])["payload"],
        json!({"error": "Runtime timeout exceeded after 5m0s", "original_payload": {"a": 1}})
    );
    let mismatch = r#"{"id":"1","route":{"actors":["bar"],"current":0},"payload":1}"#;
    let mismatch = sent(
        &rules(),
        mismatch.as_bytes(),
        Outcome::Received,
        &DeliveryState::default(),
    );
    assert_eq!(
        json_of(&mismatch[0])["payload"]["error"],
        "Route mismatch: message routed to wrong actor (expected: foo, actual: bar)"
    );
}

/// SC-67
#[test]
fn message_without_a_usable_id_gets_a_derived_one_and_keeps_its_body() {
    let received = |body: &[u8]| {
        json_of(&sent(&rules(), body, Outcome::Received, &DeliveryState::default())[0])
    };
    let text = received(b"no JSON \"");
    assert_eq!(text["payload"]["original_body"], "no JSON \"");
    assert_eq!(
        text["route"],
        json!({"actors": ["error-end"], "current": 0})
    );
    let id = text["id"].as_str().expect("an id");
    assert_eq!((id.len(), &id[..11]), (27, "unparsable-"));
    assert_eq!(
        text,
        received(b"no JSON \""),
        "the id is stable across redeliveries"
    );
    let bytes = received(&[0xff, 0xfe]);
    assert_eq!(bytes["payload"]["original_body_base64"], "//4=");
    let no_id = received(br#"{"route":{"actors":["foo"]},"payload":[1]}"#);
    assert_eq!(no_id["payload"]["original_payload"], json!([1]));
    assert_eq!(no_id["route"], json!({"actors": ["foo"]}));
    assert!(
        no_id["id"]
            .as_str()
            .expect("an id")
            .starts_with("unparsable-")
    );
}

/// SC-67, SC-83, SC-96: the span that is inserted has another id for each delivery.
#[test]
fn size_and_derived_id_are_those_of_the_received_message() {
    let received = r#"{"route":{"actors":["foo"]},"payload":1}"#;
    let traced = |span: &str| {
        received.replacen(
            '{',
            &format!(r#"{{"headers":{{"traceparent":"{span}"}},"#),
            1,
        )
    };
    let rules = Rules {
        max_message_size: received.len(),
        ..rules()
    };
    let failed = |span: &str| {
        let request = traced(span);
        let body = Body {
            received: received.as_bytes(),
            request: request.as_bytes(),
        };
        let state = DeliveryState::default();
        json_of(&bodies(decide(&rules, body, Outcome::Received, &state))[0])
    };
    let (one, other) = (failed("00-1"), failed("00-2"));
    assert_eq!(one["id"], other["id"]);
    assert_eq!(one["headers"]["traceparent"], "00-1");
    let error = &one["payload"]["error"];
    assert_eq!(error, "Message missing required 'id' field");
}
