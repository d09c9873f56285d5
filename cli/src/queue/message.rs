//! Messages in the format of sidecars (SC-59).

use std::fmt::Write as _;

use asya_wire::envelope;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::Failure;

/// The fields of a message that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Absent if it is not a message of an actor.
    pub id: Option<String>,
    pub actors: Vec<String>,
    pub current: usize,
    /// In a message to error-end: why it failed.
    pub error: Option<String>,
}

impl Envelope {
    /// Reads a message; what is missing or unreadable is absent.
    pub fn read(body: &[u8]) -> Self {
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return Self::default();
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let route = &message[envelope::ROUTE];
        let actors = route[envelope::ACTORS].as_array().into_iter().flatten();
        let current = route[envelope::CURRENT].as_u64().unwrap_or_default();
        Self {
            id: text(&message[envelope::ID]),
            actors: actors.filter_map(text).collect(),
            current: usize::try_from(current).unwrap_or(usize::MAX),
            error: text(&message[envelope::PAYLOAD][envelope::ERROR]),
        }
    }

    /// The current actor.
    pub fn actor(&self) -> Option<&str> {
        self.actors.get(self.current).map(String::as_str)
    }
}

/// A route, with the current actor in brackets.
pub fn route(actors: &[String], current: usize) -> String {
    let mut text = String::new();
    for (at, actor) in actors.iter().enumerate() {
        let arrow = if at == 0 { "" } else { " > " };
        let _ = if at == current {
            write!(text, "{arrow}[{actor}]")
        } else {
            write!(text, "{arrow}{actor}")
        };
    }
    text
}

/// The payload of a message as it was sent; the whole body as text if it is not a message of an actor.
pub fn payload(body: &[u8]) -> Box<RawValue> {
    #[derive(serde::Deserialize)]
    struct Payload {
        payload: Box<RawValue>,
    }
    let found = serde_json::from_slice::<Payload>(body).map(|it| it.payload);
    found
        .or_else(|_| serde_json::value::to_raw_value(&String::from_utf8_lossy(body)))
        .unwrap_or_default()
}

/// A message whose route consists of this actor. The payload's bytes stay unchanged.
///
/// # Errors
/// If the payload is not JSON.
pub fn compose(id: &str, actor: &str, payload: &str) -> Result<Bytes, Failure> {
    #[derive(Serialize)]
    struct Message<'a> {
        id: &'a str,
        route: Route<'a>,
        payload: &'a RawValue,
    }
    #[derive(Serialize)]
    struct Route<'a> {
        actors: [&'a str; 1],
        current: u32,
    }
    let payload: &RawValue = serde_json::from_str(payload).map_err(|error| {
        Failure::new(format!(
            "the payload is not JSON: {error}; a text needs quotes: '\"hello\"'"
        ))
    })?;
    let route = Route {
        actors: [actor],
        current: 0,
    };
    let message = serde_json::to_vec(&Message { id, route, payload });
    let message = message.map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
    Ok(message.into())
}

/// A random id in the form of a UUID (version 4).
pub fn random_id() -> String {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    let bits = fastrand::u128(..) & !VERSION & !VARIANT | 4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &hex[range]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_of(read: &Envelope) -> String {
        route(&read.actors, read.current)
    }

    #[test]
    fn message_is_summarised_whatever_it_holds() {
        let routed =
            r#"{"id":"a","route":{"actors":["x","y"],"current":1},"payload":{"error":"timeout"}}"#;
        let read = Envelope::read(routed.as_bytes());
        assert_eq!(
            (read.id.as_deref(), read.actor(), &*route_of(&read)),
            (Some("a"), Some("y"), "x > [y]")
        );
        assert_eq!(read.error.as_deref(), Some("timeout"));
        for odd in ["", "poison", "[]", r#"{"id":1,"route":{"actors":"x"}}"#] {
            assert_eq!(Envelope::read(odd.as_bytes()), Envelope::default(), "{odd}");
        }
        let past = Envelope::read(br#"{"id":"a","route":{"actors":["x"],"current":1}}"#);
        assert_eq!((past.actor(), &*route_of(&past)), (None, "x"));
    }

    #[test]
    fn payload_keeps_its_bytes() {
        let text = r#"{"n": 12345678901234567890,  "e": "\u00fc<&>"}"#;
        let body = compose("a", "embed", text).unwrap();
        assert_eq!(payload(&body).get(), text);
        assert_eq!(route_of(&Envelope::read(&body)), "[embed]");
        assert_eq!(payload(b"poison").get(), "\"poison\"");
        let refused = compose("a", "embed", "hello").unwrap_err().to_string();
        assert!(refused.contains("needs quotes"), "{refused}");
    }

    #[test]
    fn ids_are_random_uuids() {
        let (one, other) = (random_id(), random_id());
        assert_ne!(one, other);
        assert_eq!((one.len(), &one[14..15]), (36, "4"));
        assert!("89ab".contains(&one[19..20]), "{one}");
    }
}
