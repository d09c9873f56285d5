//! Messages and replies from untrusted senders (SC-59, SC-60, SC-100). A second parser, `serde_json::Value`, says what
//! they mean.

use asya_fuzz::input::{damaged, json, space, text};
use asya_fuzz::proptest::collection::vec;
use asya_fuzz::proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use asya_fuzz::proptest::sample::select;
use asya_fuzz::proptest::test_runner::TestCaseError;
use asya_fuzz::{check, fail};
use serde_json::Value;

use super::super::{Message, Reply, Routes, value_in};
use crate::decide::testing::{self, decide};
use crate::decide::{Action, DeliveryState, EndActor, Kind, Outcome, OutgoingMessage};

type Member = (String, Value, &'static str);

/// Members with arbitrary values, preferably those that the sidecar reads, some of them twice.
fn members() -> impl Strategy<Value = Vec<Member>> {
    let keys = [
        "id",
        "parent_id",
        "route",
        "headers",
        "payload",
        "Id",
        "pay\"load",
        "error",
    ];
    let key = prop_oneof![3 => select(keys.to_vec()).prop_map(str::to_owned), 1 => text()];
    let route = (vec(text(), 0..4), any::<i64>())
        .prop_map(|(actors, current)| serde_json::json!({"actors": actors, "current": current}));
    vec((key, prop_oneof![3 => json(), 1 => route], space()), 0..9)
}

/// The object with whitespace, and escaped keys where the whitespace says so.
fn written(members: &[Member]) -> String {
    let members = members.iter().map(|(key, value, space)| {
        let key = match (*space, key.chars().next()) {
            (" ", Some(first)) if u32::from(first) < 0x1_0000 => {
                let rest = Value::from(&key[first.len_utf8()..]).to_string();
                format!("\"\\u{:04x}{}", u32::from(first), &rest[1..])
            }
            _ => Value::from(key.as_str()).to_string(),
        };
        format!("{space}{key}{space}:{space}{value}{space}")
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// SC-59, SC-60, SC-100
#[test]
fn what_is_read_is_what_a_second_parser_reads() {
    check(&members(), |members| {
        let body = written(&members);
        let expected: Value = serde_json::from_str(&body).map_err(fail)?;
        let message = Message::read(body.as_bytes()).map_err(fail)?;
        let has =
            |key: &str, is: fn(&Value) -> bool| expected.get(key).filter(|it| is(it)).cloned();
        for (found, expected) in [
            (
                message.id,
                has("id", |id| id.as_str().is_some_and(|id| !id.is_empty())),
            ),
            (message.parent_id, has("parent_id", Value::is_string)),
            (message.route, has("route", Value::is_object)),
            (message.headers, has("headers", Value::is_object)),
            (message.payload, has("payload", |_| true)),
        ] {
            let found = found.map(|written| {
                assert!(body.contains(written), "not a slice of the message");
                serde_json::from_str::<Value>(written).expect("JSON")
            });
            prop_assert_eq!(found, expected);
        }
        Ok(())
    });
}

/// The messages and replies of the corpus of SC-110.
fn corpus() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let corpus: Vec<Value> =
        serde_json::from_str(include_str!("../../decide/tests/corpus.json")).expect("the corpus");
    let all = |key: &str| {
        let values = corpus.iter().filter_map(|case| case.get(key));
        values.map(|value| value.to_string().into_bytes()).collect()
    };
    (all("message"), all("reply"))
}

/// SC-59, SC-60, SC-66, SC-67, SC-71, SC-100
#[test]
fn every_decision_settles_the_message_and_sends_only_json() {
    let (messages, replies) = corpus();
    let inputs = (damaged(messages), damaged(replies), any::<bool>());
    check(&inputs, |(body, reply, is_end)| {
        let mut rules = testing::rules();
        if is_end {
            rules.end = Some(EndActor::Error);
        }
        let state = DeliveryState::default();
        let received = decide(&rules, &body, Outcome::Received, &state).actions;
        // Only a call has an outcome.
        let outcomes = if received == [Action::Call] {
            vec![
                Outcome::Replied(&reply),
                Outcome::TimedOut,
                Outcome::Ended,
                Outcome::NotRead,
            ]
        } else {
            Vec::new()
        };
        let after = outcomes
            .into_iter()
            .map(|outcome| decide(&rules, &body, outcome, &state).actions);
        for actions in [received].into_iter().chain(after) {
            prop_assert!(!actions.is_empty());
            for action in &actions {
                if let Action::Send(message) = action {
                    is_message(message, &body)?;
                }
            }
        }
        let _ = Reply::read(&reply, Routes::Ignored);
        let _ = Reply::first_payload(&reply);
        Ok(())
    });
}

/// Checks that what is sent is a message. The sidecar's own reports keep the source's payload as it was.
fn is_message(sent: &OutgoingMessage, source: &[u8]) -> Result<(), TestCaseError> {
    let message = Message::read(&sent.body).map_err(fail)?;
    prop_assert!(message.id.is_some() && message.route.is_some());
    let payload = message.payload.ok_or_else(|| fail("no payload"))?;
    if let (Kind::ErrorEnd, Ok(source)) = (sent.kind, Message::read(source)) {
        prop_assert_eq!(value_in(payload, "original_payload"), source.payload);
    }
    Ok(())
}
