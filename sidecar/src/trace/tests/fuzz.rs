//! Splices a trace context into arbitrary messages (SC-96, SC-100).

use asya_fuzz::input::{damaged, json, space, text};
use asya_fuzz::proptest::collection::vec;
use asya_fuzz::proptest::prelude::{Just, Strategy, prop_assert, prop_assert_eq, prop_oneof};
use asya_fuzz::{check, fail};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{PARENT, TRACE, TraceContext};

fn context() -> TraceContext {
    TraceContext {
        trace: TRACE.to_owned(),
        span: PARENT.to_owned(),
        sampled: true,
    }
}

/// Headers with and without a trace context, messages with and without headers.
fn messages() -> impl Strategy<Value = String> {
    let key = prop_oneof![3 => text(), 1 => Just("traceparent".to_owned())];
    let headers = vec((key, json(), space()), 0..4).prop_map(|members| written(&members));
    let other = (text(), json())
        .prop_map(|(key, value)| format!("{}:{value}", Value::from(format!("x{key}"))));
    (
        prop_oneof![2 => headers.prop_map(Some), 1 => Just(None)],
        vec(other, 0..3),
        space(),
    )
        .prop_map(|(headers, mut members, space)| {
            let at = members.len() / 2;
            members.extend(headers.map(|headers| format!("\"headers\":{space}{headers}")));
            members.rotate_right(at);
            format!("{space}{{{space}{}{space}}}{space}", members.join(","))
        })
}

fn written(members: &[(String, Value, &'static str)]) -> String {
    let members = members.iter().map(|(key, value, space)| {
        format!(
            "{space}{}{space}:{space}{value}{space}",
            Value::from(key.as_str())
        )
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// SC-96
#[test]
fn spliced_message_is_the_same_with_our_context() {
    check(&messages(), |message| {
        let spliced = context().spliced_into(message.as_bytes());
        let spliced = spliced.ok_or_else(|| fail("it can carry headers"))?;
        let mut expected: Map<String, Value> = serde_json::from_str(&message).map_err(fail)?;
        let headers = expected
            .entry("headers")
            .or_insert_with(|| Map::new().into());
        headers["traceparent"] = format!("00-{TRACE}-{PARENT}-01").into();
        let found: Map<String, Value> = serde_json::from_slice(&spliced).map_err(fail)?;
        prop_assert_eq!(found, expected);
        prop_assert_eq!(TraceContext::of(&spliced), Some(context()));
        Ok(())
    });
}

/// SC-96, SC-100
#[test]
fn no_message_breaks_when_it_is_spliced() {
    let examples = [
        r#"{"id":"1","headers":{"traceparent":"x","a":[{}]},"payload":1}"#,
        r#"{"headers":{},"headers":[]}"#,
        r#"{"headers":{"\ud800traceparent":"x"}}"#,
        " { } ",
    ];
    let examples = examples.map(|example| example.as_bytes().to_vec()).to_vec();
    check(&damaged(examples), |message| {
        let Some(spliced) = context().spliced_into(&message) else {
            return Ok(());
        };
        prop_assert!(serde_json::from_slice::<IgnoredAny>(&spliced).is_ok());
        // JSON that runtimes accept and `serde_json` cannot hold, such as half of a surrogate pair or 1e999, stays like
        // that.
        let is_held = |message: &[u8]| serde_json::from_slice::<Value>(message).is_ok();
        prop_assert!(is_held(&spliced) || !is_held(&message));
        Ok(())
    });
}
