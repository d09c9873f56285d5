//! Composes outgoing messages from slices of received ones (SC-60, SC-62 to SC-67).

use asya_wire::envelope::{DETAILS, MESSAGE, TRACEBACK};
use asya_wire::{ERROR_END, envelope};
use base64::Engine as _;

use crate::digest;
use crate::envelope::{Element, Message};

/// Lengths, in bytes, to which the texts of a message that is too large are truncated (SC-83). The end of a traceback
/// tells most; of other texts, the beginning.
const LONGEST_TRACEBACK: usize = 64 << 10;
const LONGEST_TEXT: usize = 16 << 10;

/// Members of an envelope, as raw JSON.
struct Parts<'a> {
    id: &'a str,
    parent_id: Option<&'a str>,
    route: &'a str,
    headers: Option<&'a str>,
    payload: &'a str,
}

impl Parts<'_> {
    fn join(&self) -> Vec<u8> {
        let some = [
            Some(self.id),
            self.parent_id,
            Some(self.route),
            self.headers,
            Some(self.payload),
        ];
        let length: usize = some.into_iter().flatten().map(str::len).sum();
        let mut body = Vec::with_capacity(length + 64);
        body.push(b'{');
        for (key, value) in [
            envelope::ID,
            envelope::PARENT_ID,
            envelope::ROUTE,
            envelope::HEADERS,
            envelope::PAYLOAD,
        ]
        .into_iter()
        .zip(some)
        {
            member(&mut body, key, value);
        }
        body.push(b'}');
        body
    }
}

/// Appends `"key":value` to an open object; `key` must not need escapes.
fn member(object: &mut Vec<u8>, key: &str, value: Option<&str>) {
    let Some(value) = value else { return };
    if !object.ends_with(b"{") {
        object.push(b',');
    }
    object.push(b'"');
    object.extend_from_slice(key.as_bytes());
    object.extend_from_slice(b"\":");
    object.extend_from_slice(value.as_bytes());
}

/// The id of a reply element, as JSON: the source's for the first, `{id}-{n}` for the others (SC-63).
pub fn id_of_element(source: &str, index: usize) -> String {
    match source.strip_suffix('"') {
        Some(open) if index > 0 => format!("{open}-{index}\""),
        _ => source.to_owned(),
    }
}

/// The message for a reply element. `id` is the source's, as JSON.
pub fn result(source: &Message<'_>, id: &str, element: &Element<'_>, index: usize) -> Vec<u8> {
    Parts {
        id: &id_of_element(id, index),
        parent_id: if index == 0 {
            source.parent_id
        } else {
            Some(id)
        },
        route: element.route,
        headers: element.headers.or(source.headers),
        payload: element.payload.unwrap_or("null"),
    }
    .join()
}

/// The source as sent to happy-end after an empty reply.
pub fn unchanged(source: &Message<'_>, id: &str) -> Vec<u8> {
    Parts {
        id,
        parent_id: source.parent_id,
        route: source.route.unwrap_or("{}"),
        headers: source.headers,
        payload: source.payload.unwrap_or("null"),
    }
    .join()
}

/// The error in a message to error-end.
#[derive(Debug, Default)]
pub struct Error<'a> {
    /// An error code or text.
    pub text: &'a str,
    /// The handler's exception details, as JSON.
    pub details: Option<&'a str>,
    /// The sidecar's own explanation.
    pub message: Option<&'a str>,
    /// Size of the message that was too large, in bytes.
    pub original_size: Option<usize>,
}

/// How much of the source and the error details a message to error-end keeps (SC-83).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keep {
    /// Everything.
    #[default]
    All,
    /// The error and the message and traceback of its details are truncated.
    LessText,
    /// In addition, the payload is omitted.
    NoPayload,
    /// In addition, the details are omitted.
    NoDetails,
    /// In addition, the headers are omitted.
    NoHeaders,
}

impl Keep {
    /// The next step; `None` if nothing is left to omit.
    #[must_use]
    pub fn less(self) -> Option<Self> {
        match self {
            Self::All => Some(Self::LessText),
            Self::LessText => Some(Self::NoPayload),
            Self::NoPayload => Some(Self::NoDetails),
            Self::NoDetails => Some(Self::NoHeaders),
            Self::NoHeaders => None,
        }
    }
}

/// The message that reports a failed source to error-end (SC-66, SC-67).
pub fn failed(body: &[u8], source: Option<&Message<'_>>, error: &Error<'_>, keep: Keep) -> Vec<u8> {
    // Derived from the body, so that redeliveries get the same id.
    let made_up = || format!("\"unparsable-{}\"", &digest::of(body)[..16]);
    let id = source
        .and_then(|source| source.id)
        .map_or_else(made_up, str::to_owned);
    let default_route = format!("{{\"actors\":[\"{ERROR_END}\"],\"current\":0}}");
    Parts {
        id: &id,
        parent_id: source.and_then(|source| source.parent_id),
        route: source
            .and_then(|source| source.route)
            .unwrap_or(&default_route),
        headers: source
            .filter(|_| keep < Keep::NoHeaders)
            .and_then(|source| source.headers),
        payload: &payload_of_failed(body, source, error, keep),
    }
    .join()
}

fn payload_of_failed(
    body: &[u8],
    source: Option<&Message<'_>>,
    error: &Error<'_>,
    keep: Keep,
) -> String {
    let mut payload = vec![b'{'];
    member(&mut payload, envelope::ERROR, Some(&code_of(error, keep)));
    if keep < Keep::NoDetails {
        let own = error
            .message
            .map(|text| format!("{{\"{MESSAGE}\":{}}}", quoted(text)));
        let details = error.details.or(own.as_deref());
        let cut = details
            .filter(|_| keep > Keep::All)
            .and_then(with_less_text);
        member(&mut payload, DETAILS, cut.as_deref().or(details));
    }
    let size = error.original_size.map(|size| size.to_string());
    member(&mut payload, "original_size", size.as_deref());
    if keep < Keep::NoPayload {
        match (source, std::str::from_utf8(body)) {
            (Some(source), _) => member(&mut payload, "original_payload", source.payload),
            (None, Ok(text)) => member(&mut payload, "original_body", Some(&quoted(text))),
            (None, Err(_)) => {
                let encoded = base64::engine::general_purpose::STANDARD.encode(body);
                member(
                    &mut payload,
                    "original_body_base64",
                    Some(&quoted(&encoded)),
                );
            }
        }
    }
    payload.push(b'}');
    // All parts are UTF-8, so the conversion is never lossy.
    String::from_utf8(payload)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The code or text of the error, as JSON. The handler's is already JSON; the sidecar's own is plain text.
fn code_of(error: &Error<'_>, keep: Keep) -> String {
    let is_json = error.text.starts_with('"');
    if keep == Keep::All || error.text.len() <= LONGEST_TEXT {
        return if is_json {
            error.text.to_owned()
        } else {
            quoted(error.text)
        };
    }
    let written = is_json.then(|| serde_json::from_str::<String>(error.text).ok());
    let text = written.flatten();
    quoted(beginning(text.as_deref().unwrap_or(error.text)))
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

/// Keeps only the beginning of a long message and the end of a long traceback; `None` if the details are not an object,
/// or short enough.
fn with_less_text(details: &str) -> Option<String> {
    let mut details: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(details).ok()?;
    let mut is_cut = false;
    if let Some(serde_json::Value::String(message)) = details.get_mut(MESSAGE) {
        is_cut |= message.len() > LONGEST_TEXT;
        message.truncate(message.floor_char_boundary(LONGEST_TEXT));
    }
    if let Some(serde_json::Value::String(traceback)) = details.get_mut(TRACEBACK) {
        is_cut |= traceback.len() > LONGEST_TRACEBACK;
        let from = traceback.len().saturating_sub(LONGEST_TRACEBACK);
        traceback.drain(..traceback.ceil_char_boundary(from));
    }
    is_cut.then(|| serde_json::to_string(&details).ok())?
}

/// Encodes text as a JSON string.
fn quoted(text: &str) -> String {
    // Serializing a string cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}
