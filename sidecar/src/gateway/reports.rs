//! Report bodies, with the field names and texts of the Go sidecar.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::envelope::{Message, RawError, Reply, Route, Routing};
use crate::time::rfc3339;

#[derive(Serialize)]
struct Progress<'a> {
    actors: &'a [Cow<'a, str>],
    current_actor_idx: i64,
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_size_kb: Option<f64>,
}

/// A message of this size was received.
#[expect(clippy::cast_precision_loss, reason = "kilobytes with two decimals")]
pub(super) fn received(route: &Route<'_>, bytes: usize) -> Vec<u8> {
    let kilobytes = bytes as f64 / 1024.0;
    json(&Progress {
        actors: &route.actors,
        current_actor_idx: route.current,
        status: "received",
        message: format!("Received message ({kilobytes:.2} KB)"),
        duration_ms: None,
        message_size_kb: Some(kilobytes),
    })
}

/// The message is sent to the runtime.
pub(super) fn processing(route: &Route<'_>, actor: &str) -> Vec<u8> {
    json(&Progress {
        actors: &route.actors,
        current_actor_idx: route.current,
        status: "processing",
        message: format!("Processing in {actor}"),
        duration_ms: None,
        message_size_kb: None,
    })
}

/// The runtime has replied; the route is that of its first result.
pub(super) fn completed(route: &Route<'_>, took: Duration) -> Vec<u8> {
    let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    json(&Progress {
        actors: &route.actors,
        current_actor_idx: route.current,
        status: "completed",
        message: format!("Completed processing in {milliseconds}ms"),
        duration_ms: Some(milliseconds),
        message_size_kb: None,
    })
}

#[derive(Serialize)]
struct Child<'a> {
    id: &'a str,
    parent_id: String,
    actors: &'a [Cow<'a, str>],
    current: i64,
}

/// An additional message of a fan-out.
pub(super) fn child(id: &str, parent_id: String, route: &Route<'_>) -> Vec<u8> {
    json(&Child {
        id,
        parent_id,
        actors: &route.actors,
        current: route.current,
    })
}

#[derive(Default, Serialize)]
struct Final<'a> {
    id: &'a str,
    status: &'static str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_details: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actors: Option<&'a [Cow<'a, str>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_actor_idx: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_actor_name: Option<&'a str>,
}

/// The message succeeded; the result is the payload of the reply, or else that of the message.
pub(super) fn succeeded(id: &str, message: &Message<'_>, reply: &[u8], now: SystemTime) -> Vec<u8> {
    let result = Reply::first_payload(reply)
        .or(message.payload)
        .filter(|result| *result != "null");
    json(&Final {
        id,
        status: "succeeded",
        timestamp: rfc3339(now),
        progress: Some(1.0),
        result: raw(result),
        ..Final::default()
    })
}

/// The message failed; its payload says why, and its route where.
pub(super) fn failed(id: &str, message: &Message<'_>, now: SystemTime) -> Vec<u8> {
    let RawError { error, details } = message.payload.map(Message::error_in).unwrap_or_default();
    let route = match &message.routing {
        Routing::Route(route) if !route.actors.is_empty() => Some(route),
        _ => None,
    };
    json(&Final {
        id,
        status: "failed",
        timestamp: rfc3339(now),
        error: raw(error),
        error_details: raw(details),
        actors: route.map(|route| route.actors.as_slice()),
        current_actor_idx: route.map(|route| route.current),
        current_actor_name: route.and_then(Route::current_actor),
        ..Final::default()
    })
}

fn raw(written: Option<&str>) -> Option<&RawValue> {
    serde_json::from_str(written?).ok()
}

fn json(report: &impl Serialize) -> Vec<u8> {
    // Serializing a report cannot fail.
    serde_json::to_vec(report).unwrap_or_default()
}
