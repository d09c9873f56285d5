//! Parses messages and replies, decoding no more than routing needs (SC-59, SC-60).
//!
//! All parts are slices of the received bytes, so they are forwarded byte for byte. This is the only module that
//! depends on the version of the envelope format (SC-2).

mod fields;
mod reply;
mod route;
#[cfg(test)]
mod tests;

use asya_wire::envelope::{DETAILS, ERROR, HEADERS, ID, PARENT_ID, PAYLOAD, ROUTE};
use serde_json::value::RawValue;

use self::fields::{fields, fields_of_beginning, is_object, is_string};
pub use self::reply::{Element, Failure, Reply, Routes};
pub use self::route::Route;

/// The keys of a message.
const KEYS: [&str; 5] = [ID, PARENT_ID, ROUTE, HEADERS, PAYLOAD];

/// A received message. JSON values are kept as written.
#[derive(Debug)]
pub struct Message<'a> {
    /// The id as written, a non-empty JSON string; `None`: there is none that can be used.
    pub id: Option<&'a str>,
    /// The parent's id as written, a JSON string.
    pub parent_id: Option<&'a str>,
    /// The route as written, if it is an object.
    pub route: Option<&'a str>,
    /// The parsed route.
    pub routing: Routing<'a>,
    /// The headers as written, if they are an object.
    pub headers: Option<&'a str>,
    /// The payload as written; `None`: there is none.
    pub payload: Option<&'a str>,
}

/// The routing information of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Routing<'a> {
    /// A valid route.
    Route(Route<'a>),
    /// There is no route, or one without actors.
    Missing,
    /// A route in a later version of the format (SC-2).
    LaterFormat,
    /// Not a valid route, with the reason.
    Invalid(String),
}

/// Why a message cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not UTF-8.
    #[error("not UTF-8: {0}")]
    NotText(#[from] std::str::Utf8Error),
    /// Not JSON, or not an object.
    #[error("{0}")]
    NotJson(#[from] serde_json::Error),
}

impl<'a> Message<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// If the bytes are not a JSON object in UTF-8.
    pub fn read(body: &'a [u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(body)?;
        Ok(Self::of(fields(text, KEYS)?))
    }

    /// Parses what is complete in the beginning of a message. In messages of a sidecar, the payload comes last.
    #[must_use]
    pub fn read_beginning(body: &'a [u8]) -> Self {
        let text = match std::str::from_utf8(body) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&body[..error.valid_up_to()]).unwrap_or_default(),
        };
        Self::of(fields_of_beginning(text, KEYS))
    }

    fn of([id, parent_id, route, headers, payload]: [Option<&'a str>; 5]) -> Self {
        Self {
            id: id.filter(|id| is_string(id) && *id != "\"\""),
            parent_id: parent_id.filter(|id| is_string(id)),
            route: route.filter(|route| is_object(route)),
            routing: Routing::read(route),
            headers: headers.filter(|headers| is_object(headers)),
            payload,
        }
    }

    /// The error in the payload of a message to error-end.
    #[must_use]
    pub fn error_in(payload: &str) -> RawError<'_> {
        let [error, details] = fields(payload, [ERROR, DETAILS]).unwrap_or_default();
        RawError {
            error: error.filter(|error| is_string(error) && *error != "\"\""),
            details: details.filter(|details| *details != "null"),
        }
    }

    /// The id as text, for log lines, properties and URLs.
    #[must_use]
    pub fn id_text(&self) -> Option<String> {
        decoded(self.id?)
    }
}

impl<'a> Routing<'a> {
    fn read(route: Option<&'a str>) -> Self {
        match route {
            None | Some("null") => Self::Missing,
            Some(route) => Route::read(route),
        }
    }

    /// Whether both are at the same actor of the same route, or neither has a route.
    fn is_at(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Route(one), Self::Route(other)) => {
                one.actors == other.actors && one.current == other.current
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// The name of the current actor; empty if there is none.
    #[must_use]
    pub fn current_actor(&self) -> &str {
        match self {
            Self::Route(route) => route.current_actor().unwrap_or_default(),
            _ => "",
        }
    }
}

/// The error and its details in the payload of a message to error-end, as written.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawError<'a> {
    pub error: Option<&'a str>,
    pub details: Option<&'a str>,
}

/// The value of a key in an object, as written.
pub fn value_in<'a>(object: &'a str, key: &'static str) -> Option<&'a str> {
    let [value] = fields(object, [key]).ok()?;
    value
}

/// The text of a JSON string; `None`: it has no UTF-8 form, like an escaped lone surrogate.
fn decoded(written: &str) -> Option<String> {
    serde_json::from_str(written).ok()
}

/// A JSON value as written.
type Written<'a> = &'a RawValue;
